"""Batches in USB's form: reproducible, resumable, with domains."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from semilearn_ext.data import views
from semilearn_ext.data.device_batches import batch_makers
from semilearn_ext.data.experiment import load_data
from semilearn_ext.data.loaders import EpochLoader, PlainImages, check_shared_memory, read_ahead
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from tests.forked import PATIENCE

Tiny = Callable[..., Settings]
FIXMATCH = ["x_lb", "y_lb", "x_ulb_w", "x_ulb_s"]


def loaders(settings: Settings, names: list[str] = FIXMATCH) -> dict[str, EpochLoader]:
    data = load_data(settings)
    makers = batch_makers(data, names)
    return {
        name: EpochLoader(maker, data.total_steps, settings.num_workers, pin_memory=False)
        for name, maker in makers.items()
    }


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_labels_domains_and_numbers_belong_to_the_images(tiny: Tiny) -> None:
    settings = tiny(batch_size=12)
    data = load_data(settings)
    loader = loaders(settings)["train_lb"]
    batch = next(iter(loader))
    assert batch["x_lb"].shape == (12, 3, 32, 32)
    assert batch["d_lb"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    positions = [data.split.labelled[number] for number in batch["idx_lb"]]
    assert batch["y_lb"].tolist() == [data.items[p].label for p in positions]
    assert [data.sources[d] for d in batch["d_lb"]] == [data.items[p].domain for p in positions]


@pytest.mark.parametrize("stream", ["train_lb", "train_ulb"])
def test_batches_do_not_depend_on_the_number_of_workers(tiny: Tiny, stream: str) -> None:
    without_workers, with_workers = (list(loaders(tiny(num_workers=workers))[stream]) for workers in (0, 2))
    assert len(without_workers) == len(with_workers) == 4
    assert all(same(batch, other) for batch, other in zip(without_workers, with_workers, strict=True))


def test_loader_processes_leave_the_global_generator_alone(tiny: Tiny) -> None:
    """Otherwise methods that draw from it would depend on the number of workers, and on where a run was resumed."""
    before = torch.get_rng_state()
    assert len(list(loaders(tiny(num_workers=1, num_train_iter=1))["train_lb"])) == 1
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_come_from_spawned_processes(tinier: Tiny) -> None:
    """As on macOS, where a process that is not a fork gets a pickled batch maker."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("spawn", force=True)
    try:
        spawned = list(loaders(tinier(num_workers=1))["train_ulb"])
    finally:
        multiprocessing.set_start_method(before, force=True)
    without_workers = list(loaders(tinier())["train_ulb"])
    assert len(without_workers) == 4
    assert all(same(batch, other) for batch, other in zip(without_workers, spawned, strict=True))


def test_batch_makers_are_pickled_without_the_images(tinier: Tiny) -> None:
    """Cached images are pickled as the path of their file; torch shares images in memory."""
    data = load_data(tinier(img_size=64))
    maker = batch_makers(data, FIXMATCH)["train_ulb"]
    pickled = pickle.dumps(maker)
    assert np.prod(data.store.pixels.shape) > 1_000_000  # type: ignore[attr-defined]
    assert len(pickled) < 100_000
    received = pickle.loads(pickled)
    assert same(received[0, 0], maker[0, 0])


def test_too_little_shared_memory_is_an_error(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    makers = batch_makers(load_data(tiny(batch_size=48)), FIXMATCH).values()
    free = 64 * 2**20
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    check_shared_memory(makers, 2, 1, "num_workers")
    check_shared_memory(makers, 0, 1, "num_workers")
    with pytest.raises(UserError, match=r"num_workers: 32 loader processes .* 64 MB are free; .*--shm-size"):
        check_shared_memory(makers, 32, 1, "num_workers")
    with pytest.raises(UserError, match="num_workers: 8 loader processes"):
        check_shared_memory(makers, 8, 4, "num_workers")


def test_a_loader_continues_from_any_position(tiny: Tiny) -> None:
    settings = tiny(num_train_iter=0, epoch=2, batch_size=48)
    loader = loaders(settings)["train_ulb"]
    first = list(loader)
    loader.seek(len(first))
    second = list(loader)
    resumed = loaders(settings)["train_ulb"]
    resumed.seek(len(first) - 2)
    assert all(same(batch, other) for batch, other in zip(resumed, first[-2:], strict=True))
    resumed.seek(len(first))
    assert same(next(iter(resumed)), second[0])
    assert not same(first[0], second[0])


def test_seeds_have_different_orders_and_views(tiny: Tiny) -> None:
    first, second = (next(iter(loaders(tiny(seed=seed))["train_ulb"])) for seed in (1, 2))
    assert not torch.equal(first["idx_ulb"], second["idx_ulb"])


def test_labelled_and_unlabelled_images_are_distinct(tiny: Tiny) -> None:
    data = load_data(tiny())
    assert not set(data.split.labelled) & set(data.split.unlabelled)
    assert "y_ulb" not in next(iter(loaders(tiny())["train_ulb"]))


def test_rotated_views_are_rotations_of_the_strong_view(tiny: Tiny) -> None:
    remixmatch = ["x_lb", "y_lb", "x_ulb_w", "x_ulb_s_0", "x_ulb_s_1", "x_ulb_s_0_rot", "rot_v"]
    batch = next(iter(loaders(tiny(batch_size=24), remixmatch)["train_ulb"]))
    for image, rotated, quarters in zip(batch["x_ulb_s_0"], batch["x_ulb_s_0_rot"], batch["rot_v"], strict=True):
        assert torch.equal(torch.rot90(image, int(quarters), (1, 2)), rotated)
    assert len(set(batch["rot_v"].tolist())) > 1


@pytest.mark.parametrize("threads", [0, 2])
def test_plain_images_are_shared_between_processes(threads: int, tiny: Tiny) -> None:
    data = load_data(tiny())
    images = PlainImages(data, data.split.target, 100, view="test", threads=threads)
    counts = torch.zeros(len(images))
    for rank in range(2):
        for part, x in images.share(rank, 2):
            counts[part] += 1
            assert torch.equal(x, views.plain(data.test_store[images.positions[part]], data.view))
    assert (counts == 1).all()


def test_the_next_images_are_read_while_a_batch_is_in_use() -> None:
    """Otherwise a GPU would be idle at every evaluation of images that do not fit into its memory."""
    begun = {part: threading.Event() for part in range(6)}

    def read(part: int) -> int:
        begun[part].set()
        return 10 * part

    results = read_ahead(read, begun, threads=2)
    assert next(results) == 0
    assert all(begun[part].wait(PATIENCE) for part in (1, 2))
    assert not begun[5].is_set(), "too many batches would be in memory"
    assert list(results) == [10, 20, 30, 40, 50]


def test_an_error_while_reading_ahead_is_raised_in_its_turn() -> None:
    def read(part: int) -> int:
        if part == 1:
            raise UserError("images/dog.jpg: corrupt")
        return part

    results = read_ahead(read, range(100), threads=1)
    assert next(results) == 0
    with pytest.raises(UserError, match=r"dog.jpg: corrupt"):
        next(results)


@pytest.mark.parametrize(
    ("damage", "line"), [(Path.unlink, ".jpg: "), (lambda p: p.write_bytes(b"x"), ".jpg: corrupt")]
)
def test_an_unreadable_image_in_a_loader_process_is_one_line(
    damage: Callable[[Path], object], line: str, tiny: Tiny, image_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(image_folder, tmp_path / "images")
    own = {"dataset": "folder", "data_dir": str(tmp_path / "images"), "img_size": 32, "labels_per_class": 2}
    target = sorted(path.name for path in image_folder.iterdir() if path.is_dir())[0]
    batches = loaders(tiny(**own, target_domain=target, cache="none", num_workers=1))["train_lb"]
    for image in (tmp_path / "images").rglob("*.jpg"):
        damage(image)
    with pytest.raises(UserError) as caught:
        next(iter(batches))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_a_file_name_that_is_not_valid_text_is_split_and_read(tinier: Tiny, image_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(image_folder, tmp_path / "images")
    renamed = tmp_path / "images" / "ink" / "a" / os.fsdecode(b"pic_\xff\xfe.jpg")
    (tmp_path / "images" / "ink" / "a" / "pic_000.jpg").rename(renamed)
    for cache in ("memmap", "none"):
        data = load_data(tinier(data_dir=str(tmp_path / "images"), target_domain="pen", cache=cache))
        positions = [p for p, item in enumerate(data.items) if item.name.endswith(renamed.name)]
        assert len(positions) == 1
        assert data.store[torch.tensor(positions)].shape == (1, 3, 16, 16)
