"""A damaged cache is detected, reported and repaired; no wrong pixel is ever used."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from semilearn_ext.data import cache, pixel_file
from semilearn_ext.data.decode import center_crop, squash
from semilearn_ext.data.pixel_file import checksum
from semilearn_ext.errors import UserError
from semilearn_ext.settings import image_cache
from tests.data.test_cache import opened, stretch
from tests.image_trees import picture, write_images

SIZE = 16
EVERYTHING = torch.arange(16)


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", [f"{d}/{c}" for d in ("day", "night") for c in ("cat", "dog")], 4, "png")
    stretch(tmp_path / "pets", "day/cat/pic_001.png", "night/dog/pic_003.png")
    return tmp_path / "pets"


@pytest.fixture
def pixels(pets: Path, tmp_path: Path) -> Path:
    """The pixel file of ``pets``: 18 rows."""
    opened(pets, tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*.uint8")
    return path


def rows_of(path: Path) -> np.ndarray:
    return np.fromfile(path, np.uint8).reshape(-1, 3, SIZE, SIZE)


def assert_right(cached: cache.ImageCache, root: Path, names: list[str]) -> None:
    for images, resize in ((cached.squashed, squash), (cached.center, center_crop)):
        direct = cache.DecodedImages([root / name for name in names], SIZE, resize)
        assert torch.equal(images[EVERYTHING], direct[EVERYTHING])


def flip_one_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def change_description(path: Path, **values: object) -> None:
    file = path.with_suffix(".json")
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "about": {**content["about"], **values}}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "rows reversed": lambda path: rows_of(path)[::-1].copy().tofile(path),
    "two rows exchanged": lambda path: rows_of(path)[[1, 0, *range(2, 18)]].copy().tofile(path),
    "zeroed": lambda path: np.zeros_like(rows_of(path)).tofile(path),
    "inverted": lambda path: (255 - rows_of(path)).tofile(path),
    "mirrored": lambda path: rows_of(path)[..., ::-1].copy().tofile(path),
    "one bit": flip_one_bit,
    "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"more"),
    "another file": lambda path: path.write_bytes(b"<html>" * 999),
    "no description": lambda path: path.with_suffix(".json").unlink(),
    "empty description": lambda path: path.with_suffix(".json").write_text(""),
    "a list as description": lambda path: path.with_suffix(".json").write_text("[1]"),
    "brackets as description": lambda path: path.with_suffix(".json").write_text("[" * 100_000),
    "one byte of the description": lambda path: flip_one_bit(path.with_suffix(".json")),
    "description of other images": lambda path: change_description(path, digest="0" * 64),
    "description with another number": lambda path: change_description(path, images=15),
    "description with other crops": lambda path: change_description(path, not_square=[0, 1]),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_cache_is_repaired_and_reported(
    damage: str, pixels: Path, pets: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    intact = pixels.read_bytes()
    DAMAGE[damage](pixels)
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)
    errors = capfd.readouterr().err
    assert errors.count("\n") == 1
    assert errors.startswith(f"{pixels}: ")
    assert pixels.read_bytes() == intact
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("length", [0, 100, 9 * 3 * SIZE * SIZE])
def test_a_cache_that_is_truncated_during_reading_is_repaired(
    length: int, pixels: Path, pets: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a memory map, this would raise SIGBUS."""
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)
    os.truncate(pixels, length)
    assert_right(cached, pets, names)
    assert "the cache is damaged; decoding the damaged images again\n" in capfd.readouterr().err


def test_what_killed_processes_left_of_a_cache_is_removed(pixels: Path, pets: Path, tmp_path: Path) -> None:
    abandoned, in_use = (pixels.with_name(f".{pixels.name}.{name}.tmp") for name in ("abandoned", "in_use"))
    for temporary in (abandoned, in_use):
        temporary.write_bytes(b"half of a cache")
    os.utime(abandoned, (0, 0))
    pixels.unlink()
    opened(pets, tmp_path / "cache")
    assert pixels.exists()
    assert (abandoned.exists(), in_use.exists()) == (False, True)


def test_a_deleted_cache_remains_readable(pixels: Path, pets: Path, tmp_path: Path) -> None:
    cached, names = opened(pets, tmp_path / "cache")
    shutil.rmtree(pixels.parent)
    assert_right(cached, pets, names)


def test_a_cache_of_other_images_is_replaced(pixels: Path, pets: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "others", [f"{d}/{c}" for d in ("day", "night") for c in ("cow", "pig")], 4, "png")
    stretch(tmp_path / "others", "day/cow/pic_001.png", "night/pig/pic_003.png")
    opened(tmp_path / "others", tmp_path / "other_cache")
    (other,) = (tmp_path / "other_cache").glob("*.uint8")
    assert other.stat().st_size == pixels.stat().st_size
    shutil.copy(other, pixels)
    shutil.copy(other.with_suffix(".json"), pixels.with_suffix(".json"))
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)


def test_a_cache_of_another_size_is_replaced(pixels: Path, pets: Path, tmp_path: Path) -> None:
    opened(pets, tmp_path / "cache", size=8)
    (small,) = (tmp_path / "cache").glob("*-8px.uint8")
    shutil.copy(small, pixels)
    shutil.copy(small.with_suffix(".json"), pixels.with_suffix(".json"))
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)


@pytest.mark.parametrize("kind", ["folder", "fifo"])
def test_a_folder_or_pipe_instead_of_the_cache(kind: str, pixels: Path, pets: Path, tmp_path: Path) -> None:
    pixels.unlink()
    if kind == "folder":
        pixels.mkdir()
        with pytest.raises(UserError, match="cannot store the cache of 16 images there"):
            opened(pets, tmp_path / "cache")
    else:
        os.mkfifo(pixels)
        cached, names = opened(pets, tmp_path / "cache")
        assert_right(cached, pets, names)


def test_a_damaged_cache_of_changed_images_is_an_error(pixels: Path, pets: Path, tmp_path: Path) -> None:
    cached, names = opened(pets, tmp_path / "cache")
    for seed, name in enumerate(names):
        picture(pets / name, seed=seed + 99)
    np.zeros_like(rows_of(pixels)).tofile(pixels)
    with pytest.raises(UserError, match="images have changed; run the same command again"):
        cached.squashed[EVERYTHING]


def test_a_cache_that_cannot_be_repaired_is_built_again_by_the_next_run(
    pixels: Path, pets: Path, tmp_path: Path
) -> None:
    """Its checksums do not match the decoded images, as after an update of the decoder."""
    about = json.loads(pixels.with_suffix(".json").read_text())["about"]
    pixel_file.Description(**{**about, "checksums": list(range(18))}).write(pixels.with_suffix(".json"))
    cached, names = opened(pets, tmp_path / "cache")
    with pytest.raises(UserError, match="run the same command again"):
        cached.squashed[EVERYTHING]
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(cached, pets, names)


def test_a_cache_can_be_read_after_pickling(pixels: Path, pets: Path, tmp_path: Path) -> None:
    cached, names = opened(pets, tmp_path / "cache")
    assert_right(pickle.loads(pickle.dumps(cached)), pets, names)


def test_rows_that_this_process_has_written_are_verified_after_a_change(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pixel_file, "_CLOCK_MARGIN", -1)
    cached, names = opened(pets, tmp_path / "cache")
    (path,) = (tmp_path / "cache").glob("*.uint8")
    with monkeypatch.context() as patch:
        patch.setattr(pixel_file, "checksum", lambda row: -1)
        assert_right(cached, pets, names)
    time.sleep(0.05)
    flip_one_bit(path)
    assert_right(cached, pets, names)
    assert "the cache is damaged" in capsys.readouterr().err
    assert opened(pets, tmp_path / "cache")[0].squashed.pixels.written is None


def test_a_file_that_changed_recently_is_always_verified(
    pets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pixel_file, "_CLOCK_MARGIN", 10**13)
    cached, names = opened(pets, tmp_path / "cache")
    assert cached.squashed.pixels.written is None
    assert_right(cached, pets, names)


@pytest.mark.parametrize("size", [8, 9, 32, 64, 129])
def test_the_checksum_detects_every_changed_or_exchanged_value(size: int) -> None:
    rng = np.random.default_rng(size)
    row = rng.integers(0, 256, (3, size, size), np.uint8)
    intact = checksum(row)
    assert checksum(row.copy()) == intact
    flat = row.reshape(-1)
    for position in rng.permutation(flat.size)[:3072]:
        for bit in (1, 128):
            flat[position] ^= bit
            assert checksum(row) != intact, (position, bit)
            flat[position] ^= bit
    for _ in range(2000):
        changed = flat.copy()
        changed[8 * rng.choice(flat.size // 8, 2, replace=False) + 7] ^= 128  # the highest bits of two words
        assert checksum(changed) != intact
    for step in (
        8,
        512,
        4096,
        8 * 509,
        size,
        size * size,
    ):  # exchanged words, sectors, pages, blocks, lines or channels
        exchanged = np.concatenate([flat[step : 2 * step], flat[:step], flat[2 * step :]])
        if not np.array_equal(exchanged, flat):
            assert checksum(exchanged) != intact, step
    for change in (flat[::-1], 255 - flat, flat ^ 128, np.roll(flat, 1), np.roll(flat, 8), np.zeros_like(flat)):
        assert checksum(change.copy()) != intact


@pytest.mark.parametrize(
    "values",
    [
        {"not_square": [1, 99]},
        {"not_square": [1, 1]},
        {"not_square": ["a", "b"]},
        {"bad": {"99": "x"}},
        {"bad": []},
        {"bad": {"1": None}},
        {"checksums": [-1] * 18},
        {"checksums": ["a"] * 18},
        {"checksums": 18},
    ],
)
def test_a_description_with_impossible_content_and_the_right_checksum(
    pets: Path, pixels: Path, tmp_path: Path, values: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    change_description(pixels, **values)
    description = pixels.with_suffix(".json")
    about = json.loads(description.read_text())["about"]
    description.write_text(json.dumps({"about": about, "sha256": image_cache._sha256(about)}))
    names = sorted(str(path.relative_to(pets)) for path in pets.rglob("*.png"))
    assert_right(cache.open_cache(pets, names, SIZE, tmp_path / "cache", progress=False), pets, names)
    assert "its description is damaged; building it again" in capsys.readouterr().err
