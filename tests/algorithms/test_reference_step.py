"""The benchmark's step against plain loops over domains, what batch norm sees, and how often an image goes through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.observing import join_by_domain
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, settings_from

Tiny = Callable[..., Settings]


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    return algorithm


def batch(algorithm: Any) -> dict[str, torch.Tensor]:
    parts = [algorithm.loader_dict[name].dataset[0, 0] for name in ("train_lb", "train_ulb")]
    return {**parts[0], **parts[1]}


def test_batches_are_joined_domain_by_domain() -> None:
    labelled, unlabelled = torch.tensor([0, 0, 10, 10]), torch.tensor([1, 2, 11, 12])
    assert join_by_domain(labelled, unlabelled, 2).tolist() == [0, 0, 1, 2, 10, 10, 11, 12]


def test_it_equals_loops_over_domains(tiny: Tiny) -> None:
    """Losses are means within a domain, summed; labelled images are in the unlabelled loss."""
    algorithm = build(tiny(algorithm="fixmatch", step="reference", batch_size=12))
    given = batch(algorithm)
    with torch.no_grad():
        weak = algorithm.model(torch.cat([given["x_lb"], given["x_ulb_w"]]))["logits"]
        algorithm.p_cutoff = threshold = weak.softmax(1).amax(1).median().item()
    out, logs = algorithm.train_step(**algorithm.process_batch(**given))
    total = supervised = 0.0
    kept = []
    with torch.no_grad():
        for d in range(3):
            lb, ulb = given["d_lb"] == d, given["d_ulb"] == d
            logits = algorithm.model(torch.cat([given["x_lb"][lb], given["x_ulb_w"][ulb]]))["logits"]
            strong = algorithm.model(torch.cat([given["x_lb_s"][lb], given["x_ulb_s"][ulb]]))["logits"]
            confidence, label = logits.softmax(1).max(1)
            mask = confidence >= threshold
            kept.append(mask)
            loss = (cross_entropy(strong, label, reduction="none") * mask).mean()
            part = cross_entropy(logits[: int(lb.sum())], given["y_lb"][lb])
            supervised, total = supervised + float(part), total + float(part) + float(loss)
    assert 0 < torch.cat(kept).float().mean() < 1
    assert float(logs["train/sup_loss"]) == pytest.approx(supervised, rel=1e-5)
    assert out["loss"].item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("name", ["fixmatch", "stylematch"])
def test_batch_norm_sees_one_domain_and_no_image_twice(name: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm=f"{name}_upcsc", step="reference", net="resnet18", batch_size=6, uratio=2))
    passes: list[torch.Tensor] = []
    algorithm.model.backbone.register_forward_pre_hook(lambda _, inputs: passes.append(inputs[0]))
    given = batch(algorithm)
    algorithm.train_step(**algorithm.process_batch(**given))
    views = 2 if name == "fixmatch" else 3
    assert len(passes) == 3 * views
    assert all(len(images) == 2 + 4 for images in passes)
    assert len(torch.cat(passes).flatten(1).unique(dim=0)) == 3 * views * 6

    def domain_of(image: torch.Tensor) -> int:
        at = (given["x_ulb_w"] == image).flatten(1).all(1).nonzero()
        return int(given["d_ulb"][at[0, 0]])

    for number, images in enumerate(passes[:3]):
        assert {domain_of(image) for image in images[2:]} == {number}


def test_plugins_see_labelled_images_among_the_views(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc", step="reference", batch_size=6, uratio=2))
    given = batch(algorithm)
    algorithm.out_dict, _ = algorithm.train_step(**algorithm.process_batch(**given))
    seen = algorithm.observer.observation(algorithm.out_dict)
    assert [len(view) for view in seen.views] == [18, 18]
    assert seen.domain is not None
    assert seen.domain.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert seen.labelled_among_views
    torch.testing.assert_close(seen.labelled.features[:2], seen.views[0][:2])
    assert seen.weak_of_all().features is seen.views[0]


def test_summing_equals_the_mean_at_scaled_rates() -> None:
    """SGD on K times the loss is SGD on the loss at K times the rate and a Kth of the decay: the shipped balance."""

    def weights_after(factor: float, lr: float, decay: float) -> torch.Tensor:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(5, dtype=torch.float64))
        optimizer = torch.optim.SGD([weight], lr=lr, momentum=0.9, weight_decay=decay)
        for _ in range(10):
            optimizer.zero_grad()
            (factor * (weight - 1).pow(4).sum()).backward()
            optimizer.step()
        return weight.detach()

    torch.testing.assert_close(weights_after(3, 0.003, 5e-4), weights_after(1, 0.009, 5e-4 / 3), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["freematch", "erm", "flexmatch_upcsc"])
def test_other_algorithms_refuse_it(name: str) -> None:
    with pytest.raises(UserError, match="the reference step is that of fixmatch and stylematch; use step: usb"):
        settings_from(algorithm=name, step="reference")
