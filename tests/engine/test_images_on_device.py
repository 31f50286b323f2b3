"""Images in GPU memory, or copied there batch by batch, and their views: the host never waits for the device."""

from __future__ import annotations

import warnings
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
    on_device, on_cpu = (
        training.build(make_context(tiny(device="cuda", views_on=views_on, flip=True))) for views_on in ("auto", "cpu")
    )
    assert isinstance(on_device.context.data.store, DeviceImages)
    assert not isinstance(on_cpu.context.data.store, DeviceImages)
    device_batch, cpu_batch = next_batch(on_device), next_batch(on_cpu)
    assert device_batch["x_ulb_s"].device.type == "cuda"
    assert all(torch.equal(device_batch[name].cpu(), value) for name, value in cpu_batch.items())


@pytest.mark.parametrize("algorithm", ["fixmatch_upcsc", "stylematch"])
def test_views_on_the_cpu_train_as_those_on_the_device_and_nothing_waits(
    algorithm: str, tinier: Tiny, pretend_cuda: PretendCuda, tmp_path: Path
) -> None:
    # float32, because many CPUs have to emulate half precision.
    values = {"device": "cuda", "algorithm": algorithm, "step": "reference", "precision": "float32"}
    built = training.build(make_context(tinier(views_on="cpu", **values)))
    built.it = built.epoch = 0
    for _ in range(2):  # the first step creates constants
        with pretend_cuda.counted() as waits:
            batch = next_batch(built)
            assert batch["x_ulb_s"].device.type == "cpu"
            built.step(**batch)
            built.call_hook("after_train_step", "ParamUpdateHook")
    assert not waits
    on_cpu, on_device = (
        training.run(tinier(views_on=where, save_dir=str(tmp_path / where), **values)).result["metrics"]
        for where in ("cpu", "device")
    )
    assert {**on_cpu, "seconds": 0} == {**on_device, "seconds": 0}


def test_images_that_do_not_fit_are_sent_batch_by_batch(
    tiny: Tiny, pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fits = training.build(make_context(tiny(device="cuda")))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _=None: (2**20, 2**33))
    with pytest.warns(UserWarning, match="num_workers: the images are not in the GPU's memory, .*use --num_workers 4"):
        algorithm = training.build(make_context(tiny(device="cuda")))
    assert not isinstance(algorithm.context.data.store, DeviceImages)
    next_batch(algorithm)  # creates the constants of the kernels
    with pretend_cuda.counted() as waits:
        batch = next_batch(algorithm)
    assert not waits
    assert all(torch.equal(batch[name].cpu(), value.cpu()) for name, value in next_batch(fits).items())
    assert algorithm.evaluate("target") == fits.evaluate("target")
    assert (algorithm.eval_sets["target"].threads, fits.eval_sets["target"].threads) == (1, 0)
