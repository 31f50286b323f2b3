"""Nothing of ours makes the host wait for a GPU in a step; what USB waits for is in docs/gpu.md."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.data.device_images import DeviceImages
from semilearn_ext.data.loaders import Batch
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import Settings
from tests.pretend_cuda import PretendCuda, Wait

Tiny = Callable[..., Settings]
STEPS = [
    *(("erm", "reference"), ("fixmatch", "reference"), ("stylematch", "reference"), ("stylematch", "usb")),
    *(("fixmatch_upcsc_fbcsa_dgwm", step) for step in ("usb", "reference")),
    *(("stylematch_upcsc_fbcsa_dgwm", step) for step in ("usb", "reference")),
    *((name, "usb") for name in ("remixmatch", "comatch", "meanteacher", "softmatch_upcsc")),
]


def next_batch(algorithm: SSDGBase) -> Batch:
    batch: Batch = {}
    for loader in algorithm.loader_dict.values():
        loader.seek(0)
        batch |= next(iter(loader))
    return batch


@pytest.mark.parametrize("views_on", ["auto", "cpu"])
@pytest.mark.parametrize(("algorithm", "step"), STEPS)
def test_a_step_waits_for_nothing_of_ours(
    tinier: Tiny, pretend_cuda: PretendCuda, algorithm: str, step: str, views_on: str
) -> None:
    settings = tinier(algorithm=algorithm, step=step, device="cuda", num_train_iter=2, views_on=views_on)
    trained = training.build(make_context(settings))
    trained.train()  # tables and masks that are made once are on the device from here on
    with pretend_cuda.counted() as waits:
        batch = next_batch(trained)
        trained.step(**batch)
        trained.call_hook("after_train_step", "ParamUpdateHook")
    assert not ours(waits)


def ours(waits: dict[Wait, int]) -> dict[Wait, int]:
    return {wait: count for wait, count in waits.items() if not wait.place.startswith("semilearn/")}


def test_views_on_the_device_start_from_images_in_its_memory(tiny: Tiny, pretend_cuda: PretendCuda) -> None:
    there, here = (
        training.build(make_context(tiny(device="cuda", views_on=views_on, flip=True))) for views_on in ("auto", "cpu")
    )
    assert isinstance(there.context.data.store, DeviceImages)
    assert not isinstance(here.context.data.store, DeviceImages)
    ours, theirs = next_batch(there), next_batch(here)
    assert ours["x_ulb_s"].device.type == "cuda"
    assert all(torch.equal(ours[name].cpu(), value) for name, value in theirs.items())


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
