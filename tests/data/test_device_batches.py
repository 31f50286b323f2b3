"""Batches whose views are computed on the device equal those of the loader processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch

from semilearn_ext import training
from semilearn_ext.data.cache import CachedImages
from semilearn_ext.data.device_batches import DeviceBatchMaker, batch_makers
from semilearn_ext.data.device_images import DeviceImages, move_images
from semilearn_ext.data.experiment import SSDGData, load_data
from semilearn_ext.data.pixel_file import PixelFile
from semilearn_ext.engine.context import make_context
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]
CPU = torch.device("cpu")


def batches(settings: Settings, **changes: Any) -> list[dict[str, torch.Tensor]]:
    """The first batches of both streams of two epochs, as USB gets them."""
    algorithm = training.build(make_context(settings, **changes))
    batches_found = []
    for name in ("train_lb", "train_ulb"):
        loader = algorithm.loader_dict[name]
        assert isinstance(loader.dataset, DeviceBatchMaker) == (settings.views_on == "device")
        for iteration in (0, len(loader)):
            loader.seek(iteration)
            batches_found.append(next(iter(loader)))
    return batches_found


@pytest.mark.parametrize("algorithm", ["fixmatch", "comatch", "remixmatch", "meanteacher", "stylematch"])
def test_batches_on_the_device_equal_those_of_the_cpu(tiny: Tiny, algorithm: str) -> None:
    settings = tiny(algorithm=algorithm, num_train_iter=10_000, img_size=28, flip=True)
    for on_device, on_cpu in zip(batches(replace(settings, views_on="device")), batches(settings), strict=True):
        assert set(on_device) == set(on_cpu)
        for name, value in on_cpu.items():
            assert torch.equal(on_device[name], value), name
            assert on_device[name].dtype is value.dtype


def test_batches_on_the_device_do_not_depend_on_loader_processes(tiny: Tiny) -> None:
    settings = tiny(num_train_iter=10_000, views_on="device")
    for with_workers, without in zip(batches(replace(settings, num_workers=1)), batches(settings), strict=True):
        assert all(torch.equal(with_workers[name], value) for name, value in without.items())


def test_a_run_has_the_same_result_and_records_where_its_views_were_computed(tiny: Tiny, tmp_path: Any) -> None:
    settings = tiny(algorithm="fixmatch", num_train_iter=2)
    settings_on_device = replace(settings, views_on="device", save_dir=str(tmp_path / "on_device"))
    on_cpu, on_device = training.run(settings).result, training.run(settings_on_device).result
    assert [on_cpu["metrics"][name] for name in ("train/total_loss", "target/top1")] == [
        on_device["metrics"][name] for name in ("train/total_loss", "target/top1")
    ]
    assert RunFolder(run_path(settings)).read_environment()["views_on"] == "cpu"
    assert RunFolder(run_path(settings_on_device)).read_environment()["views_on"] == "device"


@pytest.fixture
def data(tiny: Tiny) -> SSDGData:
    return load_data(tiny(source_domains="print,street"))


def test_images_that_fit_are_moved_once_and_only_those_of_the_run(data: SSDGData) -> None:
    moved = move_images(data, CPU, free=10**9)
    assert isinstance(moved.store, DeviceImages)
    assert isinstance(moved.test_store, DeviceImages)
    assert moved.store.pixels is moved.test_store.pixels
    used = [position for part in data.split for position in part]
    assert len(moved.store.pixels) == len(used) < len(data.items)
    trained = torch.tensor([*data.split.unlabelled[:3], *data.split.labelled[-3:]])
    assert torch.equal(moved.store[trained], data.store[trained])
    tested = torch.tensor(used)
    assert torch.equal(moved.test_store[tested], data.test_store[tested])


def test_training_images_are_moved_only_if_they_are_trained_on(data: SSDGData) -> None:
    """Images that are not square differ in training and at test time."""
    assert isinstance(data.store, torch.Tensor)
    count = len(data.items)
    both = torch.cat([data.store, 255 - data.store])
    rows, pixels = np.arange(count), cast(PixelFile, both.numpy())  # the same interface
    oblong = replace(data, store=CachedImages(pixels, rows), test_store=CachedImages(pixels, rows + count))
    moved = move_images(oblong, CPU, free=10**9)
    assert isinstance(moved.store, DeviceImages)
    trained = torch.tensor([*data.split.labelled, *data.split.unlabelled])
    tested = torch.tensor([position for part in data.split for position in part])
    assert len(moved.store.pixels) == len(trained) + len(tested)
    assert torch.equal(moved.store[trained], data.store[trained])
    assert torch.equal(moved.test_store[tested], 255 - data.store[tested])
    with pytest.raises(IndexError):
        moved.store[torch.tensor(data.split.target)]


def test_images_that_do_not_fit_stay_on_the_host(data: SSDGData) -> None:
    assert move_images(data, CPU, free=10**6) is data


def test_a_batch_of_moved_images_has_positions_instead_of_pixels(data: SSDGData) -> None:
    moved = move_images(data, CPU, free=10**9)
    (on_device, on_host) = (batch_makers(images, ["x_lb"], device=CPU)["train_lb"] for images in (moved, data))
    assert not on_device.needs_workers
    assert on_host.needs_workers
    assert on_device.prepare((0, 0)).buffer.numel() < on_host.prepare((0, 0)).buffer.numel() / 10
    assert torch.equal(on_device[0, 0]["x_lb"], on_host[0, 0]["x_lb"])
