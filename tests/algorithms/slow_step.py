"""The released training steps one pass, one domain and one image at a time, in the form of the recorded files.

Written from the list of passes in the docstring of ``semilearn_ext.algorithms.reference_step``, without the package's
networks, losses or steps. ``test_released_steps.py`` shows that it gives the recorded numbers, and then that the
package's step equals it where nothing was recorded: other domains, classes, batch sizes and methods.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, normalize, relu, softplus

from tests.algorithms.released_step import PASSES, ReleasedStep
from tests.losses.pair_loops import oracle

State = dict[str, Tensor]


def slow_step(inputs: ReleasedStep, domains: int, loss_form: str = "reference") -> State:
    """Losses, gradients and statistics of the step whose inputs are given."""
    numbers = inputs.numbers
    network = inputs.backbone().train()
    state = {k: v.clone().requires_grad_() for k, v in inputs.under("before").items() if not k.startswith("G.")}
    base, _, plugin = inputs.method.partition("_")
    views = {"strong": by_domain(numbers, "strong", domains)}
    if base == "stylematch":
        views["styled"] = list(numbers["styled"])
    noise = iter(numbers["noise"]) if "noise" in numbers else iter(())
    result: State = {}

    # Pseudo labels, without gradient: one pass per domain.
    weak = by_domain(numbers, "weak", domains)
    with torch.no_grad():
        prob = [classify(network(images), state, None).softmax(dim=1) for images in weak]
    label = [p.argmax(dim=1) for p in prob]
    kept = [p.amax(dim=1) >= numbers["threshold"] for p in prob]
    share = len(numbers["x_weak"]) // domains
    result["keep_rate_unlabelled"] = torch.cat([mask[share:] for mask in kept]).double().mean()

    # Supervised: one pass per domain, of the labelled images alone.
    losses = {"loss_x": torch.zeros((), dtype=torch.float64)}
    for images, y in zip(numbers["x_weak"].chunk(domains), numbers["y"].chunk(domains), strict=True):
        logits = classify(network(images), state, next(noise, None))
        losses["loss_x"] = losses["loss_x"] + mean(-logits.log_softmax(dim=1)[i, y[i]] for i in range(len(y)))

    # Unsupervised: per domain, one pass per view.
    for domain in range(domains if base != "erm" else 0):
        for name, key in (("strong", "loss_u_aug"), ("styled", "loss_u_sty")):
            if name in views:
                logits = classify(network(views[name][domain]), state, next(noise, None)).log_softmax(dim=1)
                rows = (-logits[i, label[domain][i]] * kept[domain][i] for i in range(len(logits)))
                losses[key] = losses.get(key, 0) + mean(rows)
        if plugin == "fbcsa":
            fbc, sa = fbcsa(normalize(network(weak[domain])), label[domain], kept[domain], numbers, domain)
            losses["loss_u_FBC"] = losses.get("loss_u_FBC", 0) + 0.1 * fbc
            losses["loss_SA"] = losses.get("loss_SA", 0) + 0.5 * sa

    # UPCSC: one pass per view, of the unlabelled images of all domains together.
    if plugin == "upcsc":
        images = [numbers["u_weak"], numbers["u_strong"]]
        if "styled" in views:
            images.append(torch.cat([part[share:] for part in views["styled"]]))
        z = torch.cat([normalize(linear(network(view), state["fP.weight"], state["fP.bias"])) for view in images])
        proxies = normalize(linear(state["C.mu" if base == "stylematch" else "C.linear.weight"], state["cP.weight"]))
        confidences = torch.cat([p[share:] for p in prob]).repeat(len(images), 1)
        confident = torch.cat([mask[share:] for mask in kept]).repeat(len(images))
        upc, sc, _ = oracle(z, proxies, confidences, confident, loss_form, "weighted", True)
        losses["loss_upcsc"] = upc + sc

    losses["loss_total"] = sum(losses.values(), torch.zeros(()))
    losses["loss_total"].backward()
    state |= {f"G.{name}": parameter for name, parameter in network.named_parameters()}
    result |= {name: value.detach() for name, value in losses.items()}
    result |= {f"grad/{name}": p.grad for name, p in state.items() if p.grad is not None}
    return result | {f"after/G.{name}": value for name, value in network.named_buffers()}


def mean(values: Any) -> Tensor:
    return torch.stack(list(values)).mean()


def by_domain(numbers: State, view: str, domains: int) -> list[Tensor]:
    """Every domain's labelled, then its unlabelled images."""
    pairs = zip(numbers[f"x_{view}"].chunk(domains), numbers[f"u_{view}"].chunk(domains), strict=True)
    return [torch.cat(pair) for pair in pairs]


def classify(features: Tensor, state: State, noise: Tensor | None) -> Tensor:
    """Logits of one pass: linear, StyleMatch's stochastic, or DGWM's modulated classifier."""
    if "C.mu" in state:
        weight = state["C.mu"]
        if noise is not None:
            weight = weight + softplus(state["C.sigma"] - 4) * noise
        return normalize(features) @ normalize(weight).T / 0.05
    if "C.w" in state:

        def layer(name: str, x: Tensor) -> Tensor:
            return linear(x, state[f"C.{name}.weight"], state[f"C.{name}.bias"])

        described = layer("p3", relu(layer("p2", relu(layer("p1", features.mean(dim=0)))))).sigmoid()
        drawn = torch.zeros_like(described) if noise is None else noise.flatten()
        hidden = relu(layer("p5", relu(layer("p4", torch.cat([described, drawn])))))
        return features @ (torch.outer(layer("h2", hidden), layer("h1", hidden)).sigmoid() * state["C.w"]).T
    return linear(features, state["C.linear.weight"], state.get("C.linear.bias"))


def fbcsa(z: Tensor, label: Tensor, kept: Tensor, numbers: State, domain: int) -> tuple[Tensor, Tensor]:
    """Feature-based conformity and semantics alignment of one domain's unit features, image by image."""
    own, other = numbers["prototypes"][domain], numbers["prototypes"][int(numbers["other_domain"][domain])]
    fbc, sa = [], []
    for i in range(len(z)):
        similarity, other_similarity = own @ z[i], other @ z[i]
        ranked = similarity.sort(descending=True)
        wrong = ranked.values[1 : int(numbers["last_rank"][domain])]
        both = similarity.log_softmax(dim=0) + other_similarity.log_softmax(dim=0)
        fbc.append(-both[label[i]] * kept[i])
        sa.append((2 - ranked.values[0] - other_similarity[ranked.indices[0]] + wrong.mean()) * kept[i])
    return mean(fbc), mean(sa)


def random_step(
    method: str,
    seed: int,
    *,
    domains: int,
    classes: int,
    labelled: int,
    unlabelled: int,
    features: int = 16,
    size: int = 12,
    threshold: float = 0.6,
    bias: bool = True,
    loss_form: str = "reference",
) -> ReleasedStep:
    """A step with random images and weights, and its outcome according to :func:`slow_step`."""
    rng = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(*shape, generator=rng, dtype=torch.float64)

    base, _, plugin = method.partition("_")
    numbers: State = {"threshold": torch.tensor(threshold, dtype=torch.float64)}
    for stream, count in (("x", labelled), ("u", unlabelled)):
        colour = draw(domains * count, 3, 1, 1, scale=2)  # so that images, and their pseudo labels, differ
        for view in ("weak", "strong", "plain"):
            numbers[f"{stream}_{view}"] = colour + draw(domains * count, 3, size, size)
    numbers["y"] = torch.randint(classes, (domains * labelled,), generator=rng)
    before: State = {}
    for number, (channels, out) in ((0, (3, 8)), (3, (8, features))):
        before[f"G.{number}.weight"] = draw(out, channels, 3, 3, scale=0.3)
        norm = f"G.{number + 1}"
        before |= {f"{norm}.weight": 1 + draw(out, scale=0.2), f"{norm}.bias": draw(out, scale=0.2)}
        before |= {f"{norm}.running_mean": draw(out, scale=0.1), f"{norm}.running_var": 1 + draw(out, scale=0.1).abs()}
        before[f"{norm}.num_batches_tracked"] = torch.tensor(seed)
    before |= _classifier(base, plugin, classes, features, bias, draw)
    if plugin == "upcsc":
        before |= {"fP.weight": draw(features, features, scale=0.3), "fP.bias": draw(features, scale=0.3)}
        before["cP.weight"] = draw(features, features, scale=0.3)
    if plugin == "fbcsa":
        numbers["prototypes"] = normalize(draw(domains, classes, features), dim=2) * 0.8
        numbers["other_domain"] = (torch.arange(domains) + 1) % domains
        numbers["last_rank"] = torch.randint(2, -(-classes // 2), (domains,), generator=rng)
    draws = domains * (3 if base == "stylematch" else 2)
    if plugin == "dgwm":
        numbers["noise"] = draw(draws, 1, features // 8)
    elif base == "stylematch":
        numbers["noise"] = draw(draws, classes, features)
    if base == "stylematch":
        numbers["styled"] = draw(domains, labelled + unlabelled, 3, size, size)
    numbers |= {f"before/{name}": value for name, value in before.items()}
    step = ReleasedStep(method, {name: value.numpy() for name, value in numbers.items()})
    step.numbers |= slow_step(step, domains, loss_form)
    by_pass, mixed = PASSES[method]
    assert int(step.numbers["after/G.1.num_batches_tracked"]) == seed + by_pass * domains + mixed
    return step


def _classifier(base: str, plugin: str, classes: int, features: int, bias: bool, draw: Any) -> State:
    if plugin == "dgwm":
        half, quarter, eighth = features // 2, features // 4, features // 8
        widths = {"p1": (half, features), "p2": (quarter, half), "p3": (eighth, quarter), "p4": (half, 2 * eighth)}
        widths |= {"p5": (features, half), "h1": (features, features), "h2": (classes, features)}
        state = {f"C.{name}.weight": draw(*shape, scale=0.5) for name, shape in widths.items()}
        state |= {f"C.{name}.bias": draw(shape[0], scale=0.3) for name, shape in widths.items()}
        return state | {"C.w": draw(classes, features)}
    if base == "stylematch":
        return {"C.mu": draw(classes, features), "C.sigma": draw(classes, features)}
    state = {"C.linear.weight": draw(classes, features)}
    return state | ({"C.linear.bias": draw(classes)} if bias else {})
