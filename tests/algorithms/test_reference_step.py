"""The reference step: equality with loops over domains, what batch norm and plug-ins get, and the number of passes.

Equality with the released code is tested in test_released_steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.base import Wants
from semilearn_ext.settings import Settings, settings_from

Tiny = Callable[..., Settings]


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    return algorithm


def batch(algorithm: Any) -> dict[str, torch.Tensor]:
    parts = [algorithm.loader_dict[name].dataset[0, 0] for name in ("train_lb", "train_ulb")]
    return {**parts[0], **parts[1]}


def test_the_reference_step_equals_loops_over_domains(tiny: Tiny) -> None:
    """Losses are means within a domain, summed over domains; the unlabelled loss includes labelled images."""
    algorithm = build(tiny(algorithm="fixmatch", step="reference", batch_size=12))
    inputs = batch(algorithm)
    with torch.no_grad():
        weak = algorithm.model(torch.cat([inputs["x_lb"], inputs["x_ulb_w"]]))["logits"]
        algorithm.p_cutoff = threshold = weak.softmax(1).amax(1).median().item()
    out, logs = algorithm.train_step(**algorithm.process_batch(**inputs))
    total = supervised = 0.0
    masks = []
    with torch.no_grad():
        for d in range(3):
            lb, ulb = inputs["d_lb"] == d, inputs["d_ulb"] == d
            logits = algorithm.model(torch.cat([inputs["x_lb"][lb], inputs["x_ulb_w"][ulb]]))["logits"]
            strong = algorithm.model(torch.cat([inputs["x_lb_s"][lb], inputs["x_ulb_s"][ulb]]))["logits"]
            confidence, label = logits.softmax(1).max(1)
            mask = confidence >= threshold
            masks.append(mask)
            loss = (cross_entropy(strong, label, reduction="none") * mask).mean()
            part = cross_entropy(algorithm.model(inputs["x_lb"][lb])["logits"], inputs["y_lb"][lb])
            supervised, total = supervised + float(part), total + float(part) + float(loss)
    assert 0 < torch.cat(masks).float().mean() < 1
    assert float(logs["train/sup_loss"]) == pytest.approx(supervised, rel=1e-5)
    assert out["loss"].item() == pytest.approx(total, rel=1e-5)


class PassCounter:
    """Counts the images that go through the network, with and without gradient."""

    def __init__(self, algorithm: Any) -> None:
        self.with_gradient = self.without = 0
        algorithm.model.backbone.register_forward_pre_hook(self.count)

    def count(self, _: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        if torch.is_grad_enabled():
            self.with_gradient += len(inputs[0])
        else:
            self.without += len(inputs[0])


@pytest.mark.parametrize(
    ("name", "with_gradient", "without"),
    [
        # In units of a batch of 16 images per domain: weak 6 for pseudo labels, supervised 3, strong 6, mixed 3 per
        # view.
        ("erm", 3, 6),
        ("fixmatch", 3 + 6, 6),
        ("fixmatch_upcsc", 3 + 6 + 3 + 3, 6),
        # FBCSA uses the weak images of the pseudo labels: one pass, with gradient.
        ("fixmatch_fbcsa", 3 + 6 + 6, 0),
        ("fixmatch_dgwm", 3 + 6, 6),
        ("stylematch", 3 + 12, 6),
        ("stylematch_upcsc", 3 + 12 + 9, 6),
    ],
)
def test_image_passes_per_step(name: str, with_gradient: int, without: int, tiny: Tiny) -> None:
    """At most as many as in the released code: 336 for fixmatch_upcsc, 240 of them with gradient."""
    algorithm = build(tiny(algorithm=name, step="reference", batch_size=48))
    passes = PassCounter(algorithm)
    algorithm.step(**batch(algorithm))
    assert (passes.with_gradient, passes.without) == (16 * with_gradient, 16 * without)


@pytest.mark.parametrize("name", ["fixmatch", "stylematch"])
def test_grouped_passes_equal_separate_passes(name: str, tiny: Tiny) -> None:
    """Loss, gradients and statistics equal those of a network that is called once per group."""
    from semilearn_ext.nets import batch_groups

    def separate_passes(model: Any, groups: Any, repeats: Any = None) -> list[torch.Tensor]:
        assert not repeats
        return [model(images, only_feat=True) for images in groups]

    results = []
    for function in (batch_groups.grouped_features, separate_passes):
        algorithm = build(
            tiny(algorithm=f"{name}_upcsc", step="reference", net="resnet_mini", batch_size=6, p_cutoff=0.2)
        )
        algorithm.model.double()
        inputs = {
            key: value.double() if value.is_floating_point() else value for key, value in batch(algorithm).items()
        }
        torch.manual_seed(0)
        with pytest.MonkeyPatch.context() as patch:
            if name == "stylematch":
                styled = [torch.rand(4, 3, 32, 32, dtype=torch.float64) for _ in range(3)]
                patch.setattr(algorithm, "encodings", lambda stream, plain, numbers: plain)
                patch.setattr(algorithm, "styled", lambda encodings, styled=styled: styled)
            patch.setattr("semilearn_ext.algorithms.reference_step.grouped_features", function)
            algorithm.step(**inputs).total.backward()
        results.append(algorithm.model)
    for (key, grouped), (_, separate) in zip(results[0].named_parameters(), results[1].named_parameters(), strict=True):
        torch.testing.assert_close(grouped.grad, separate.grad, rtol=0, atol=1e-10, msg=key)
    for (key, grouped), (_, separate) in zip(results[0].named_buffers(), results[1].named_buffers(), strict=True):
        torch.testing.assert_close(grouped, separate, rtol=0, atol=1e-12, msg=key)


@pytest.mark.parametrize("step", ["usb", "reference"])
def test_plugins_see_unlabelled_images_only(step: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc", step=step, batch_size=6, uratio=2))
    algorithm.out_dict, _ = algorithm.train_step(**algorithm.process_batch(**batch(algorithm)))
    output = algorithm.step_output(Wants())
    assert [len(view.features) for view in output.unlabelled] == [12, 12]
    assert len(output.mask) == len(output.prob) == 12
    assert output.domain.tolist() == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.parametrize("step", ["usb", "reference"])
def test_fbcsa_sees_labelled_images_too(step: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_fbcsa", step=step, batch_size=6, uratio=2))
    algorithm.out_dict, _ = algorithm.train_step(**algorithm.process_batch(**batch(algorithm)))
    output = algorithm.step_output(algorithm.plugins["fbcsa"].wants)
    assert [len(view.features) for view in output.unlabelled] == [18]
    assert sorted(output.domain.tolist()) == [0] * 6 + [1] * 6 + [2] * 6


def test_summing_equals_the_mean_at_scaled_rates() -> None:
    """SGD on K times the loss equals SGD on the loss at K times the rate and 1/K of the decay."""

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


@pytest.mark.parametrize("name", ["freematch", "flexmatch_upcsc"])
def test_other_algorithms_have_no_reference_step(name: str) -> None:
    with pytest.raises(UserError, match=r"has no reference step; use step: usb, .*: fixmatch, erm, stylematch"):
        settings_from(algorithm=name, step="reference")


def test_the_released_erm_has_no_other_step() -> None:
    assert settings_from(algorithm="erm").step == "reference"
    with pytest.raises(UserError, match="erm has no usb step; use step: reference"):
        settings_from(algorithm="erm", step="usb")


def test_one_source_domain_is_refused_with_the_reason(tiny: Tiny) -> None:
    with pytest.raises(UserError, match="the reference step needs at least two source domains"):
        training.run(tiny(algorithm="fixmatch", step="reference", source_domains="texture"))
