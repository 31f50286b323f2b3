"""Half precision: the step of every method equals that in float32, up to rounding."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from semilearn_ext import registry, training
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.device import choose_precision
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, settings_from
from tests.every_method import METHODS, active_loss, batch_of
from tests.pretend_cuda import PretendCuda

Tinier = Callable[..., Settings]
FLOAT32_ONLY = [spec.name for spec in registry.ALGORITHMS if spec.needs_float32]


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.rho_init = 1.0  # Dash sets it in its warm-up
    return algorithm


def gradients(settings: Settings) -> dict[str, torch.Tensor | None]:
    """The gradients of the second step, with a teacher that differs from the student."""
    algorithm = build(settings)
    if algorithm.ema is not None:
        for value in algorithm.ema.shadow.values():
            value.mul_(0.5)
    algorithm.it = algorithm.epoch = 0
    algorithm.call_hook("before_train_epoch")
    for algorithm.it in (0, 1):
        np.random.seed(0)
        torch.manual_seed(0)
        algorithm.model.zero_grad()
        loss = algorithm.step(**batch_of(algorithm, 0, algorithm.it)).total
        loss.backward()
    assert loss.dtype is torch.float32
    return {name: parameter.grad for name, parameter in algorithm.model.named_parameters()}


@pytest.mark.parametrize(("name", "step"), [pair for pair in METHODS if pair[0] not in FLOAT32_ONLY])
def test_gradients_equal_those_in_float32(name: str, step: str, tinier: Tinier) -> None:
    exact = gradients(tinier(precision="float32", **active_loss(name, step)))
    for precision in ("bf16", "fp16"):
        mixed = gradients(tinier(precision=precision, **active_loss(name, step)))
        assert [key for key in exact if exact[key] is None] == [key for key in mixed if mixed[key] is None]
        flat = [torch.cat([grad.flatten() for grad in grads.values() if grad is not None]) for grads in (exact, mixed)]
        assert torch.isfinite(flat[1]).all(), precision
        assert torch.cosine_similarity(*flat, dim=0) > 0.99, precision
        assert float(flat[1].norm()) == pytest.approx(float(flat[0].norm()), rel=0.05), precision


@pytest.mark.parametrize("name", FLOAT32_ONLY)
def test_methods_that_need_float32_use_it(name: str, pretend_cuda: PretendCuda) -> None:
    device = torch.device("cuda")
    assert choose_precision(settings_from(algorithm="fixmatch"), device).dtype is torch.bfloat16
    assert choose_precision(settings_from(algorithm=name), device).dtype is None
    with pytest.raises(UserError, match=f"precision: {name} needs float32: "):
        choose_precision(settings_from(algorithm=name, precision="bf16"), device)


@pytest.mark.parametrize("name", ["meanteacher", "simmatch"])
def test_the_teacher_uses_its_own_weights(name: str, tinier: Tinier) -> None:
    """Autocast caches the weights that it has cast, even if they are replaced."""
    algorithm = build(tinier(precision="bf16", **active_loss(name, "usb")))
    for value in algorithm.ema.shadow.values():
        value.zero_()
    logits: list[torch.Tensor] = []

    def record(_: Any, __: Any, output: dict[str, torch.Tensor]) -> None:
        if not torch.is_grad_enabled():
            logits.append(output["logits"])

    algorithm.model.register_forward_hook(record)
    algorithm.it = algorithm.epoch = 0
    algorithm.step(**batch_of(algorithm, 0, 0)).total.backward()
    assert len(logits) == 1
    assert not logits[0].any()
    assert all(parameter.grad is not None for parameter in algorithm.model.parameters())


def test_weights_are_restored_after_an_evaluation_within_autocast(tinier: Tinier) -> None:
    algorithm = build(tinier(precision="bf16", algorithm="meanteacher"))
    images = batch_of(algorithm, 0, 0)["x_lb"]
    for value in algorithm.ema.shadow.values():
        value.zero_()
    with torch.no_grad(), algorithm.amp_cm():
        before = algorithm.model(images)["logits"]
        algorithm.ema.apply_shadow()
        assert not algorithm.model(images)["logits"].any()
        algorithm.ema.restore()
        assert torch.equal(algorithm.model(images)["logits"], before)


def test_averaged_weights_are_used_and_replaced_within_autocast(tinier: Tinier) -> None:
    algorithm = build(tinier(precision="bf16", average="ema"))
    images = batch_of(algorithm, 0, 0)["x_lb"]
    algorithm.averages.update(algorithm.model, step=1)
    for value in algorithm.averages.kept["ema"].tensors:
        value.zero_()
    algorithm.model.eval()
    with torch.no_grad(), algorithm.amp_cm():
        before = algorithm.model(images)["logits"]
        with algorithm.averages.applied("ema", algorithm.model):
            assert not algorithm.model(images)["logits"].any()
        assert torch.equal(algorithm.model(images)["logits"], before)


@pytest.mark.parametrize("before", ["float32", "bf16"])
def test_a_run_resumes_in_fp16(before: str, tinier: Tinier, pretend_cuda: PretendCuda) -> None:
    """As on a GPU that is older than the one on which it started. The gradient scaler starts in its initial state."""
    state = checkpoint_of(tinier(device="cuda", precision=before), 2)
    pretend_cuda.bf16 = False
    algorithm = build(tinier(device="cuda"))
    assert algorithm.precision.dtype is torch.float16
    algorithm.restore(state)
    algorithm.train()
    assert algorithm.it == 4
    assert algorithm.loss_scaler.is_enabled()
    assert algorithm.loss_scaler.get_scale() > 0
    saved = algorithm.state(4)["scaler"]
    resumed = build(tinier(device="cuda", precision=before))
    resumed.restore({**state, "scaler": saved})
    resumed.train()
    assert resumed.it == 4


def test_a_gradient_that_overflows_in_fp16_leaves_out_a_step(tinier: Tinier, pretend_cuda: PretendCuda) -> None:
    """The first scale is often too large. Training continues with a smaller one, without a warning."""
    pretend_cuda.bf16 = False
    algorithm = build(tinier(device="cuda", num_train_iter=2))
    algorithm.loss_scaler = torch.amp.GradScaler("cuda", init_scale=2.0**120)
    before = {name: parameter.detach().clone() for name, parameter in algorithm.model.named_parameters()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        algorithm.train()
    assert algorithm.loss_scaler.get_scale() == 2.0**118
    assert all(torch.equal(parameter, before[name]) for name, parameter in algorithm.model.named_parameters())
    assert algorithm.scheduler.last_epoch == algorithm.it == 2
    assert math.isfinite(algorithm.metrics[-1]["train/total_loss"])


def checkpoint_of(settings: Settings, steps: int) -> dict[str, Any]:
    algorithm = build(settings)
    algorithm.num_train_iter = steps
    algorithm.train()
    return algorithm.state(steps)


def test_random_states_of_another_device_are_ignored(pretend_cuda: PretendCuda) -> None:
    """When a CUDA run is analysed on a Mac, the state of CUDA's generator is not used for MPS, nor vice versa."""
    state = checkpoint.random_state(torch.device("cuda"))
    for device in ("cpu", "mps"):
        checkpoint.restore_random_state(state, torch.device(device))
    drawn = torch.randn(2, device="cuda").tolist()
    checkpoint.restore_random_state(state, torch.device("cuda"))
    assert torch.randn(2, device="cuda").tolist() == drawn
