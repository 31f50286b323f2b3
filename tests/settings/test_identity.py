"""The identity of an experiment: settings, and the content (not the location) of files and a user's own images."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from semilearn_ext.data.decode import decode, read
from semilearn_ext.errors import UserError
from semilearn_ext.runs.sweep import Grid, experiments
from semilearn_ext.settings import Settings, config_hash, settings_from
from semilearn_ext.settings import content as contents
from semilearn_ext.settings.fingerprint import differences, identity
from tests.image_trees import picture, write_images

DIGITS = {"algorithm": "fixmatch_upcsc", "step": "reference", "flip": False, "epoch": 10, "labels_per_class": 2}
PACS = {"algorithm": "fixmatch", "step": "reference", "dataset": "pacs", "net": "resnet18", "img_size": 224}
PACS |= {"pretrained": True, "epoch": 20, "num_eval_iter": 250}
PINNED = {"90e75bf96594": DIGITS, "70f701066a07": PACS}


@pytest.mark.parametrize("pinned", PINNED)
def test_hashes_of_benchmarks_do_not_change_or_depend_on_paths(pinned: str, tmp_path: Path) -> None:
    """Runs of earlier sweeps must be recognised. A change of the hashes must be deliberate."""
    (tmp_path / "elsewhere" / "pacs").mkdir(parents=True)
    for paths in ({}, {"data_dir": str(tmp_path / "elsewhere"), "cache_dir": str(tmp_path), "seed": 7}):
        assert config_hash(settings_from(**PINNED[pinned], **paths)) == pinned


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    write_images(tmp_path / "pets", [f"{d}/{c}" for d in ("day", "night") for c in ("cat", "dog")], 2, "png")
    return tmp_path / "pets"


def own(root: Path, **values: Any) -> Settings:
    values = {"dataset": "folder", "data_dir": str(root), "cache_dir": str(root.parent / "cache"), **values}
    return settings_from(batch_size=1, **values)


def test_own_images_are_identified_by_content_and_not_by_time_or_size(pets: Path) -> None:
    before = config_hash(own(pets))
    image = pets / "day" / "cat" / "pic_000.png"
    status, content = image.stat(), image.read_bytes()
    image.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    os.utime(image, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (image.stat().st_size, image.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    assert config_hash(own(pets)) != before
    image.write_bytes(content)
    assert config_hash(own(pets)) == before


def test_own_images_are_identified_by_their_names_and_number(pets: Path) -> None:
    hashes = [config_hash(own(pets))]
    (pets / "day" / "cat" / "pic_000.png").rename(pets / "day" / "cat" / "other.png")
    hashes.append(config_hash(own(pets)))
    picture(pets / "night" / "dog" / "new.png", seed=5)
    hashes.append(config_hash(own(pets)))
    assert len(set(hashes)) == 3


def test_own_images_are_not_identified_by_their_location(pets: Path, tmp_path: Path) -> None:
    shutil.copytree(pets, tmp_path / "moved" / "pets")
    assert config_hash(own(pets)) == config_hash(own(tmp_path / "moved" / "pets"))
    assert config_hash(own(pets)) != config_hash(own(pets, dataset_name="animals"))
    assert config_hash(own(pets, dataset_name="pets")) == config_hash(own(pets))


def test_a_damaged_index_or_one_of_other_images_is_not_used(pets: Path, tmp_path: Path) -> None:
    before = config_hash(own(pets))
    (index,) = (tmp_path / "cache" / "images").glob("index-*.json")
    content = index.read_text()
    other = content.replace(content[13:15], "00", 1) if content[13:15] != "00" else content.replace("00", "11", 1)
    for damaged in (other, "", "[]", '{"digest": 1}', "[" * 100_000):
        index.write_text(damaged)
        assert config_hash(own(pets)) == before, damaged[:40]
    shutil.copytree(pets, tmp_path / "more")
    picture(tmp_path / "more" / "night" / "dog" / "new.png")
    different = config_hash(own(tmp_path / "more"))
    (second,) = set((tmp_path / "cache" / "images").glob("index-*.json")) - {index}
    shutil.copy(index, second)
    assert config_hash(own(tmp_path / "more")) == different


def test_a_sweep_reads_own_images_once(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    digest = contents.images_digest
    monkeypatch.setattr(contents, "images_digest", lambda root, *rest: folders.append(root) or digest(root, *rest))
    overrides = {"dataset": "folder", "data_dir": str(pets), "cache_dir": str(pets.parent / "cache"), "batch_size": 1}
    grid = Grid(overrides=overrides, seeds=range(50), algorithms=["fixmatch", "freematch"])
    assert len(experiments(grid)) == 200
    repeated = Grid(overrides={**overrides, "seed": 1}, algorithms=["fixmatch", "fixmatch"])
    assert len(experiments(repeated)) == 2
    assert folders == [pets]


def test_dataset_name_applies_only_to_own_images() -> None:
    with pytest.raises(UserError, match=r"dataset_name: only applies to your own images \(dataset: folder\)"):
        settings_from(dataset="pacs", dataset_name="mine")
    with pytest.raises(UserError, match=r"dataset_name: .*names consist of letters"):
        settings_from(dataset="folder", dataset_name="../mine")


def test_differences_are_named(tmp_path: Path, pets: Path) -> None:
    assert differences(identity(settings_from()), identity(settings_from(lr=0.5, p_cutoff=0.5))) == (
        "lr (0.003 and 0.5), p_cutoff (0.95 and 0.5)"
    )
    before = identity(own(pets))
    picture(pets / "night" / "dog" / "new.png")
    assert differences(before, identity(own(pets))) == "the images in data_dir"
    many = {"lr": 1.0, "epoch": 2, "net": "resnet18", "img_size": 8, "cutout": 4, "flip": False, "momentum": 0.5}
    assert differences(identity(settings_from()), identity(settings_from(**many))).endswith(", 3 more")


def test_weights_that_change_within_a_process_are_read_again(tmp_path: Path) -> None:
    def hash_with(content: bytes) -> str:
        (tmp_path / "weights.pth").write_bytes(content)
        return config_hash(settings_from(pretrained=True, pretrain_path=str(tmp_path / "weights.pth")))

    assert hash_with(b"one") != hash_with(b"two")


def test_files_that_decode_to_the_same_pixels_are_different_images(pets: Path) -> None:
    """Own images are identified by their bytes, because pixels depend on the image size and the decoder."""
    path = pets / "day" / "cat" / "pic_000.png"
    before, pixels = config_hash(own(pets)), decode(read(path)).tobytes()
    with Image.open(path) as image:
        image.save(path, compress_level=1)
    assert decode(read(path)).tobytes() == pixels
    assert config_hash(own(pets)) != before


@pytest.mark.parametrize("kind", ["fifo", "/dev/zero", "folder", "huge"])
def test_weights_that_are_not_a_regular_file_are_refused(kind: str, tmp_path: Path) -> None:
    path = Path(kind) if kind.startswith("/") else tmp_path / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        path.touch()
        os.truncate(path, 10**12)
    with pytest.raises(UserError, match=r"pretrain_path: .*: cannot be read: "):
        contents.file_hash(str(path), "pretrain_path")
