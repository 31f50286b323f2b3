"""Images in the memory of a GPU, or sent there batch by batch, and the views that are made of them: nothing waits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.data.device_images import DeviceImages
from semilearn_ext.data.loaders import Batch
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import Settings
from tests.pretend_cuda import PretendCuda

Tiny = Callable[..., Settings]


def next_batch(algorithm: SSDGBase) -> Batch:
    batch: Batch = {}
    for loader in algorithm.loader_dict.values():
        loader.seek(0)
        batch |= next(iter(loader))
    return batch


def test_views_on_the_device_start_from_images_in_its_memory(tiny: Tiny, pretend_cuda: PretendCuda) -> None:
    there, here = (
        training.build(make_context(tiny(device="cuda", views_on=views_on, flip=True))) for views_on in ("auto", "cpu")
    )
    assert isinstance(there.context.data.store, DeviceImages)
    assert not isinstance(here.context.data.store, DeviceImages)
    ours, theirs = next_batch(there), next_batch(here)
    assert ours["x_ulb_s"].device.type == "cuda"
    assert all(torch.equal(ours[name].cpu(), value) for name, value in theirs.items())


@pytest.mark.parametrize("algorithm", ["fixmatch_upcsc", "stylematch"])
def test_views_on_the_cpu_train_as_those_on_the_device_and_nothing_waits(
    algorithm: str, tiny: Tiny, pretend_cuda: PretendCuda, tmp_path: Path
) -> None:
    # float32, because many CPUs have to emulate half precision.
    values = {"device": "cuda", "algorithm": algorithm, "step": "reference", "precision": "float32"}
    built = training.build(make_context(tiny(views_on="cpu", **values)))
    built.it = built.epoch = 0
    for _ in range(2):  # the first step makes what is made once
        with pretend_cuda.counted() as waits:
            batch = next_batch(built)
            assert batch["x_ulb_s"].device.type == "cpu"
            built.step(**batch)
            built.call_hook("after_train_step", "ParamUpdateHook")
    assert not waits
    here, there = (
        training.run(tiny(views_on=where, save_dir=str(tmp_path / where), **values)).result["metrics"]
        for where in ("cpu", "device")
    )
    assert {**here, "seconds": 0} == {**there, "seconds": 0}


def test_images_that_do_not_fit_are_sent_batch_by_batch(
    tiny: Tiny, pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits = training.build(make_context(tiny(device="cuda")))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _=None: (2**20, 2**33))
    algorithm = training.build(make_context(tiny(device="cuda")))
    assert not isinstance(algorithm.context.data.store, DeviceImages)
    next_batch(algorithm)  # makes the constants of the kernels
    with pretend_cuda.counted() as waits:
        batch = next_batch(algorithm)
    assert not waits
    assert all(torch.equal(batch[name].cpu(), value.cpu()) for name, value in next_batch(fits).items())
    assert algorithm.evaluate("target") == fits.evaluate("target")
