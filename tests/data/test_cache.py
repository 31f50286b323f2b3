"""Decoding and the cache: every image mode, every kind of damage, building once and reuse."""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from semilearn_ext.data import cache
from semilearn_ext.data.decode import BadImage, center_crop, decode, squash, to_pixels
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from tests.data.test_layouts import make  # noqa: F401  a fixture
from tests.image_trees import picture, write_images

Make = Callable[..., Settings]


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", [f"{d}/{c}" for d in ("day", "night") for c in ("cat", "dog")], 4, "png")
    return tmp_path / "pets"


def opened(root: Path, folder: Path, size: int = 16) -> tuple[cache.ImageCache, list[str]]:
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))
    return cache.open_cache(root, names, size, folder, progress=False), names


def stretch(root: Path, *names: str) -> None:
    """Make some images wider than they are high."""
    for seed, name in enumerate(names):
        pixels = np.random.default_rng(seed).integers(0, 255, (20, 31, 3), np.uint8)
        Image.fromarray(pixels).save(root / name)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_mode_becomes_rgb(mode: str, tmp_path: Path) -> None:
    path = picture(tmp_path / ("image.tif" if mode == "CMYK" else "image.png"), mode=mode)
    pixels = to_pixels(squash(decode(path.read_bytes()), 8))
    assert pixels.shape == (3, 8, 8)
    assert pixels.dtype == np.uint8
    assert pixels.std() > 0


def test_images_of_sixteen_bits_are_scaled_and_not_clipped(tmp_path: Path) -> None:
    values = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    pixels = to_pixels(decode((tmp_path / "deep.png").read_bytes()))
    assert abs(pixels[0].astype(int) - np.linspace(0, 255, 64).reshape(8, 8)).max() <= 1


def test_corrupt_images_are_detected(tmp_path: Path) -> None:
    intact = picture(tmp_path / "a.jpg", side=64).read_bytes()
    for content in (b"", b"not an image", intact[: len(intact) // 2]):
        with pytest.raises(BadImage):
            decode(content)


def test_the_cache_contains_the_decoded_images(pets: Path, tmp_path: Path) -> None:
    stretch(pets, "day/cat/pic_001.png", "night/dog/pic_003.png")
    cached, names = opened(pets, tmp_path / "cache")
    assert cached.bad == {}
    positions = torch.tensor([5, 0, 3, 1, 15, 3])
    for images, resize in ((cached.squashed, squash), (cached.center, center_crop)):
        direct = cache.DecodedImages([pets / name for name in names], 16, resize)
        assert torch.equal(images[positions], direct[positions])
    positions_of_all = torch.arange(len(names))
    differs = (cached.squashed[positions_of_all] != cached.center[positions_of_all]).flatten(1).any(1)
    assert [names[k] for k in differs.nonzero().flatten()] == ["day/cat/pic_001.png", "night/dog/pic_003.png"]


def test_only_images_that_are_not_square_take_a_second_row(pets: Path, tmp_path: Path) -> None:
    """The test view needs no additional space for PACS and Digits-DG."""
    opened(pets, tmp_path / "cache")
    (pixels,) = (tmp_path / "cache").glob("*.uint8")
    assert pixels.stat().st_size == 16 * 3 * 16 * 16
    stretch(pets, "day/cat/pic_001.png")
    opened(pets, tmp_path / "other")
    (pixels,) = (tmp_path / "other").glob("*.uint8")
    assert pixels.stat().st_size == 17 * 3 * 16 * 16


def test_every_image_is_decoded_once_for_both_views(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stretch(pets, "day/cat/pic_001.png")
    decoded: list[bytes] = []
    monkeypatch.setattr(cache, "decode", lambda content: decoded.append(content) or decode(content))
    cached, names = opened(pets, tmp_path / "cache")
    positions_of_all = torch.arange(len(names))
    assert len(cached.squashed[positions_of_all]) == len(cached.center[positions_of_all]) == len(decoded) == 16


def test_positions_follow_the_order_of_the_names(pets: Path, tmp_path: Path) -> None:
    stretch(pets, "day/cat/pic_001.png", "night/dog/pic_003.png")
    forward, names = opened(pets, tmp_path / "cache")
    backward = cache.open_cache(pets, names[::-1], 16, tmp_path / "cache", progress=False)
    positions_of_all = torch.arange(len(names))
    assert torch.equal(forward.squashed[positions_of_all], backward.squashed[positions_of_all.flip(0)])
    assert torch.equal(forward.center[positions_of_all], backward.center[positions_of_all.flip(0)])


def test_a_cache_is_built_once_and_reused_when_the_images_move(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(pets, tmp_path / "cache")
    moved = tmp_path / "elsewhere"
    shutil.copytree(pets, moved)
    monkeypatch.setattr(cache, "_build", lambda *_: pytest.fail("built twice"))
    opened(pets, tmp_path / "cache")
    opened(moved, tmp_path / "cache")


def test_the_digest_of_the_decoded_images_covers_pixels_and_size(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(folder: str, size: int = 16) -> str:
        return opened(pets, tmp_path / folder, size)[0].pixels_digest

    assert digest("a") == digest("a") == digest("b")
    assert digest("a") != digest("a", size=8)
    monkeypatch.setattr(cache, "squash", lambda image, size: image.resize((size, size)).rotate(90))
    assert digest("c") != digest("a")


def test_images_of_other_content_or_size_get_another_cache(pets: Path, tmp_path: Path) -> None:
    before, names = opened(pets, tmp_path / "cache")
    opened(pets, tmp_path / "cache", size=8)
    picture(pets / names[0], seed=999)
    after, _ = opened(pets, tmp_path / "cache")
    assert not torch.equal(before.squashed[torch.tensor([0])], after.squashed[torch.tensor([0])])
    assert torch.equal(before.squashed[torch.tensor([1])], after.squashed[torch.tensor([1])])
    assert len(list((tmp_path / "cache").glob("*.uint8"))) == 3


def build_in_process(root: Path, folder: Path) -> str:
    cached, names = opened(root, folder)
    return str(cached.squashed[torch.arange(len(names))].long().sum())


def test_two_processes_can_build_the_cache_at_the_same_time(pets: Path, tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(2) as pool:
        sums = pool.starmap(build_in_process, [(pets, tmp_path / "cache")] * 4)
    assert len(set(sums)) == 1
    assert not list((tmp_path / "cache").glob(".*.tmp"))


def test_a_failed_build_leaves_no_files(pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "decode", full)
    with pytest.raises(
        UserError, match=r"cannot store the cache of 16 images there \(No space left on device\).*--cache none"
    ):
        opened(pets, tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("images-*"))


@pytest.mark.parametrize("kind", ["memmap", "none"])
def test_a_corrupt_image_is_named_or_left_out(make: Make, pets: Path, kind: str) -> None:  # noqa: F811
    (pets / "day" / "cat" / "pic_001.png").write_bytes(b"")
    values = {"dataset": "folder", "data_dir": pets, "target_domain": "night", "batch_size": 1, "cache": kind}
    data = load_data(make(**values, on_bad_image="skip"))
    assert len(data.items) == len(data.store) == len(data.test_store) == 15
    assert data.split_json()["left_out"] == {"day/cat/pic_001.png": "the file is empty"}
    assert data.store[torch.arange(15)].float().std(dim=(1, 2, 3)).min() > 0
    assert data.notes() == ["corrupt images left out: 1"]
    if kind == "memmap":
        with pytest.raises(UserError, match=r"day/cat/pic_001.png: corrupt or truncated image \(the file is empty\)"):
            load_data(make(**values))
    else:
        lazily = load_data(make(**values)).store
        with pytest.raises(UserError, match=r"day/cat/pic_001.png: corrupt or truncated image"):
            lazily[torch.arange(16)]
