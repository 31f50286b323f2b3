"""Training on the GPU of this machine, CUDA or Apple's, or on the CPU if there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.bench import doctor
from semilearn_ext.data import views
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import make_context
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.ownership import claim
from semilearn_ext.settings import Settings
from tests.every_method import METHODS, active_loss

Tiny = Callable[..., Settings]


def batch_of(algorithm: Any) -> dict[str, torch.Tensor]:
    return {name: value for maker in algorithm.dataset_dict.values() for name, value in maker[0, 0].items()}


@pytest.mark.parametrize("step", ["usb", "reference"])
def test_the_papers_method_trains_evaluates_and_records(tiny: Tiny, device: torch.device, step: str) -> None:
    settings = tiny(algorithm="fixmatch_upcsc", step=step, device=device.type, p_cutoff=0.0, views_on="device")
    result = training.run(settings).result
    assert result["iterations"] == 4
    assert result["metrics"]["train/total_loss"] > 0
    assert result["precision"] == ("float32" if device.type != "cuda" else result["precision"])


def test_a_step_equals_that_on_the_cpu(tiny: Tiny, device: torch.device) -> None:
    values = {"cache_dir": tiny().cache_dir}
    for name in ("fixmatch", "fixmatch_upcsc", "fixmatch_fbcsa", "fixmatch_dgwm"):
        finding = doctor.check_step(name, "reference", device, values)
        assert finding.status == doctor.OK, finding.line()


def test_a_stopped_run_resumes(tiny: Tiny, device: torch.device, stop_after: Callable[[Settings, int], None]) -> None:
    settings = tiny(device=device.type, precision="float32")
    stop_after(settings, 3)
    resumed = training.run(settings).result
    uninterrupted = training.run(replace(settings, save_dir=settings.save_dir + "_uninterrupted")).result
    tolerance = 0.0 if device.type == "cpu" else 1e-3
    assert resumed["metrics"]["train/total_loss"] == pytest.approx(
        uninterrupted["metrics"]["train/total_loss"], rel=tolerance
    )


def test_views_are_computed_on_the_device(device: torch.device) -> None:
    images = torch.zeros(4, 3, 32, 32, dtype=torch.uint8, device=device)
    strong = views.strong(images, views.ViewSpec(32), torch.Generator().manual_seed(0))
    assert strong.device.type == device.type


@pytest.mark.parametrize(("name", "step"), METHODS)
def test_every_method_trains_saves_and_resumes(
    name: str, step: str, tinier: Tiny, device: torch.device, pytestconfig: pytest.Config
) -> None:
    """What tests/engine/test_on_pretend_cuda.py does on the pretend device."""
    # One method is trained on a CPU too, so that this test works when it first meets a GPU.
    is_example = (name, step) == ("fixmatch_upcsc", "reference")
    if device.type == "cpu" and not is_example and not pytestconfig.getoption("without_gpu"):
        pytest.skip("there is no GPU; --without-gpu uses the CPU")
    values = {"num_train_iter": 3, "num_eval_iter": 3, "checkpoint_every": 2}
    settings = tinier(device=device.type, views_on="device", **values, **active_loss(name, step))
    folder = RunFolder(run_path(settings))
    claim(folder, settings)
    context = make_context(settings, folder=folder)
    algorithm: Any = training.build(context)
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    algorithm.train()
    resumed = training.build(replace(context, folder=None))
    resumed.restore(checkpoint.load(folder.checkpoint_files()[0]))
    resumed.train()
    assert resumed.it == algorithm.it == 3
    # A supervised method has no other loss.
    records = [trained.metrics[-1] for trained in (algorithm, resumed)]
    losses = [record.get("train/total_loss", record["train/sup_loss"]) for record in records]
    assert all(map(math.isfinite, losses))
    # A GPU does not always sum in the same order, which matters in half precision.
    assert losses[0] == pytest.approx(losses[1], rel=0.0 if device.type == "cpu" else 0.05, abs=1e-2)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only CUDA reports host waits")
@pytest.mark.parametrize("algorithm", ["fixmatch_upcsc", "stylematch_fbcsa"])
def test_a_step_never_waits_for_the_gpu(tiny: Tiny, algorithm: str) -> None:
    trained = training.build(make_context(tiny(algorithm=algorithm, step="reference", device="cuda", precision="bf16")))
    for mode in ("default", "error"):  # the first step creates constants
        torch.cuda.set_sync_debug_mode(mode)
        try:
            trained.step(**batch_of(trained))
            trained.call_hook("after_train_step", "ParamUpdateHook")
        finally:
            torch.cuda.set_sync_debug_mode("default")
