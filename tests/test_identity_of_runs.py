"""Runs on images or label splits that have changed are refused, and records say what a run was trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext import training
from semilearn_ext.errors import UserError
from semilearn_ext.report.records import read_records
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings
from tests.image_trees import grow, pacs, picture

Tiny = Callable[..., Settings]


@pytest.fixture
def own(tiny: Tiny, tmp_path: Path) -> Tiny:
    """A run of two steps on one's own images."""
    grow(tmp_path / "pets", [f"{d}/{c}" for d in ("day", "night") for c in ("cat", "dog")], 6, "png")
    values = {"dataset": "folder", "data_dir": str(tmp_path / "pets"), "target_domain": "night", "img_size": 16}
    values |= {"labels_per_class": 1, "batch_size": 2, "num_train_iter": 2, "cache_dir": str(tmp_path / "cache")}
    return lambda **more: tiny(**{**values, **more})


def test_other_images_in_the_same_folder_are_not_finished_before(own: Tiny, tmp_path: Path) -> None:
    first = training.run(own())
    assert training.run(own()).was_finished
    for number, image in enumerate(sorted((tmp_path / "pets").rglob("*.png"))):
        picture(image, seed=number + 500)
    with pytest.raises(UserError, match="they differ in the images in data_dir; choose another --save_dir"):
        training.run(own())
    second = training.run(own(overwrite=True))
    assert not second.was_finished
    assert second.result["images_sha256"] != first.result["images_sha256"]
    assert second.result["config_hash"] != first.result["config_hash"]


def test_own_images_have_a_name_in_record_and_tables(own: Tiny) -> None:
    result = training.run(own(dataset_name="my-pets")).result
    assert (result["dataset"], result["dataset_name"], len(result["images_sha256"])) == ("folder", "my-pets", 64)
    folder = RunFolder(run_path(own()))
    assert json.loads(folder.identity_file.read_text())["content"]["images"] == result["images_sha256"]
    assert folder.read_split()["images_sha256"] == result["images_sha256"]
    assert read_records([folder.path]).runs["dataset"].tolist() == ["folder my-pets"]
    with pytest.raises(UserError, match=r"they differ in dataset_name \(my-pets and pets\)"):
        training.run(own())


def test_own_images_without_a_cache_have_the_same_identity(own: Tiny) -> None:
    cached = training.run(own()).result
    decoded = training.run(own(cache="none", overwrite=True)).result
    assert (decoded["images_sha256"], decoded["config_hash"]) == (cached["images_sha256"], cached["config_hash"])


def test_a_benchmark_records_its_images_and_does_not_resume_on_others(tiny: Tiny, tmp_path: Path) -> None:
    pacs(tmp_path, count=4, splits=False)
    values = {"dataset": "pacs", "data_dir": str(tmp_path), "target_domain": "sketch", "img_size": 16}
    settings = tiny(**values, labels_per_class=1, batch_size=3, cache_dir=str(tmp_path / "cache"))
    folder = RunFolder(run_path(settings))
    recorded = training.run(settings).result["images_sha256"]
    assert len(recorded) == 64
    folder.result_file.unlink()
    picture(tmp_path / "pacs" / "photo" / "dog" / "pic_000.jpg", seed=999)
    with pytest.raises(UserError, match=f"the run was started with different images .SHA-256 {recorded[:12]}, now "):
        training.run(settings)
    assert folder.checkpoint_files()


def test_the_embedded_benchmark_records_its_images(tiny: Tiny) -> None:
    from semilearn_ext.data.experiment import load_data

    digests = {load_data(tiny(target_domain=target, seed=seed)).digest for target, seed in (("pen", 1), ("print", 2))}
    assert len(digests) == 1
    assert len(digests.pop()) == 64


def test_another_split_file_of_the_same_name_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    settings = tiny()
    training.run(settings)
    split = RunFolder(run_path(settings)).read_split()
    file = tmp_path / "split.json"
    file.write_text(json.dumps({name: split[name] for name in ("train_x", "train_u")}))
    with_file = tiny(split_file=str(file), save_dir=str(tmp_path / "with_file"))
    training.run(with_file)
    folder = RunFolder(run_path(with_file))
    assert json.loads(folder.identity_file.read_text())["split_sha256"] == folder.read_split()["split_sha256"]
    file.write_text(json.dumps({name: split[name][::-1] for name in ("train_x", "train_u")}))
    with pytest.raises(UserError, match="the run was started with a different split file"):
        training.run(with_file)


def test_tables_say_that_images_differ(tmp_path: Path) -> None:
    from tests.report.write_run import write_run

    for seed, digest in ((1, "a" * 64), (2, "b" * 64), (3, "b" * 64)):
        write_run(tmp_path, 50, seed=seed, images_sha256=digest)
    (warning,) = read_records([tmp_path]).warnings
    assert warning == (
        "digits_mini: the images are not the same in all runs: SHA-256 bbbbbbbbbbbb (2 runs), aaaaaaaaaaaa (1 runs)"
    )
