"""Runs on changed images or label splits are refused, and records identify the training data of a run."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from semilearn_ext import training
from semilearn_ext.analysis.features import features
from semilearn_ext.analysis.load_model import load_model, load_model_without_images
from semilearn_ext.analysis.load_run import load_run
from semilearn_ext.commands.train import train_target
from semilearn_ext.data import cache
from semilearn_ext.data.decode import to_pixels
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.report.build import build
from semilearn_ext.report.collect import collect
from semilearn_ext.report.records import read_records
from semilearn_ext.report.selection import read_trials
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.job import State
from semilearn_ext.runs.sweep import read_jobs
from semilearn_ext.settings import Settings
from tests.image_trees import pacs, picture, write_images

Tiny = Callable[..., Settings]


@pytest.fixture
def own(tiny: Tiny, tmp_path: Path) -> Tiny:
    """Settings of a run of two steps on a user's own images."""
    write_images(tmp_path / "pets", [f"{d}/{c}" for d in ("day", "night") for c in ("cat", "dog")], 6, "png")
    values = {"dataset": "folder", "data_dir": str(tmp_path / "pets"), "target_domain": "night", "img_size": 16}
    values |= {"labels_per_class": 1, "batch_size": 2, "num_train_iter": 2, "cache_dir": str(tmp_path / "cache")}
    return lambda **more: tiny(**{**values, **more})


def test_changed_images_in_the_same_folder_are_another_experiment(own: Tiny, tmp_path: Path) -> None:
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


def test_a_run_is_not_resumed_on_differently_decoded_images(
    own: Tiny, stop_after: Callable[[Settings, int], None]
) -> None:
    settings = own(checkpoint_every=1)
    stop_after(settings, 1)
    folder = RunFolder(run_path(settings))
    identity = folder.read_identity()
    folder.identity_file.write_text(json.dumps({**identity, "pixels_sha256": "0" * 64}))
    with pytest.raises(UserError, match="was started with differently decoded images"):
        training.run(settings)
    folder.identity_file.write_text(json.dumps({**identity, "pixels_sha256": None}))
    assert not training.run(settings).was_finished
    assert folder.read_split()["pixels_sha256"] == folder.read_identity()["pixels_sha256"]


@pytest.fixture
def decoder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Settings], None]:
    """Build the cache again with a decoder that rounds differently."""

    def build(settings: Settings) -> None:
        shutil.rmtree(tmp_path / "cache")
        with monkeypatch.context() as other:
            other.setattr(cache, "to_pixels", lambda image: to_pixels(image) // 2 * 2)
            load_data(settings)

    return build


def test_a_finished_run_is_not_the_result_on_differently_decoded_images(
    own: Tiny, decoder: Callable[[Settings], None]
) -> None:
    settings = own()
    training.run(settings)
    assert [job.status.state for job in read_jobs({run_path(settings): settings})] == [State.DONE]
    decoder(settings)
    refused = "the run was started with differently decoded images"
    with pytest.raises(UserError, match=refused):
        training.run(settings)
    with pytest.raises(UserError, match=refused):
        read_jobs({run_path(settings): settings})
    with pytest.warns(UserWarning, match="the run was trained on differently decoded images"):
        load_model(load_run(run_path(settings)), "cpu")
    assert training.run(own(save_dir=f"{settings.save_dir}2")).result["config_hash"]  # elsewhere


def test_a_finished_run_of_a_benchmark_reports_changed_images(
    tiny: Tiny, tmp_path: Path, decoder: Callable[[Settings], None]
) -> None:
    pacs(tmp_path, count=4, splits=False)
    values = {"dataset": "pacs", "data_dir": str(tmp_path), "target_domain": "sketch", "img_size": 16}
    settings = tiny(**values, labels_per_class=1, batch_size=3, cache_dir=str(tmp_path / "cache"))
    training.run(settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert training.run(settings).was_finished
    decoder(settings)
    with pytest.warns(UserWarning, match="the finished run was trained on differently decoded images"):
        assert training.run(settings).was_finished
    picture(tmp_path / "pacs" / "photo" / "dog" / "pic_000.jpg", seed=999)
    load_data(settings)
    with pytest.warns(UserWarning, match="the finished run was trained on different images"):
        assert training.run(settings).was_finished


def test_without_a_cache_a_run_is_not_resumed_with_another_decoder(
    own: Tiny, stop_after: Callable[[Settings, int], None]
) -> None:
    settings = own(checkpoint_every=1, cache="none")
    stop_after(settings, 1)
    identity = RunFolder(run_path(settings)).identity_file
    recorded = json.loads(identity.read_text())
    identity.write_text(json.dumps({**recorded, "decoder": "Pillow 9.0"}))
    for resumed in (settings, own(checkpoint_every=1)):
        with pytest.raises(UserError, match=r"with another decoder of images, .* \(Pillow 9.0, now Pillow "):
            training.run(resumed)


def test_differently_decoded_runs_of_an_experiment_are_not_averaged(tmp_path: Path) -> None:
    from tests.report.write_run import write_run

    for seed, digest in ((1, "a" * 64), (2, "b" * 64), (3, None)):
        digests = {"images_sha256": "c" * 64, "pixels_sha256": digest}
        write_run(tmp_path / "runs", 50 + seed, seed=seed, config={"img_size": 32}, **digests)
    collect([tmp_path / "runs"], tmp_path / "records")
    for place in ("runs", "records"):
        report = build([tmp_path / place], ["summary"], [], "last")
        assert report.results.cells["setup"].tolist() == [
            *("images decoded as aaaaaaaaaaaa", "images decoded as bbbbbbbbbbbb", "images decoded as not recorded"),
        ]
        assert [line for line in report.warnings if "were not decoded in the same way" in line] == [
            "digits_mini: the images were not decoded in the same way at 32 px in all runs, for example by different "
            "versions of Pillow: SHA-256 aaaaaaaaaaaa (1 runs), bbbbbbbbbbbb (1 runs)"
        ]


def test_curves_of_differently_decoded_runs_are_refused(tmp_path: Path) -> None:
    from semilearn_ext.analysis.curves import read_runs
    from tests.report.write_run import write_run

    for seed, digest in ((1, "a" * 64), (2, "b" * 64)):
        write_run(tmp_path, 50 + seed, seed=seed, pixels_sha256=digest)
    with pytest.raises(UserError, match=r"seed1 and .*seed2: cannot be averaged, because their images were decoded"):
        read_runs([tmp_path])


def test_one_known_decoding_is_no_difference(tmp_path: Path) -> None:
    from tests.report.write_run import write_run

    for seed, digest in ((1, "a" * 64), (2, None)):
        write_run(tmp_path, 50, seed=seed, pixels_sha256=digest)
    assert build([tmp_path], ["summary"], [], "last").warnings == []


def test_an_analysis_of_changed_images_says_so(own: Tiny, tmp_path: Path) -> None:
    training.run(own())
    run = load_run(run_path(own()))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        before = features(load_model(run, "cpu"), [0, 1])
    for number, image in enumerate(sorted((tmp_path / "pets").rglob("*.png"))):
        picture(image, seed=number + 500)
    with pytest.warns(
        UserWarning, match="the run was trained on different images .SHA-256 .*; this analysis uses the images in"
    ):
        changed = load_model(run, "cpu")
    assert not np.array_equal(features(changed, [0, 1]).logits, before.logits)


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
    assert (len(cached["pixels_sha256"]), decoded["pixels_sha256"]) == (64, None)


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


def test_a_run_does_not_resume_with_other_lists_of_its_benchmark(tiny: Tiny, tmp_path: Path) -> None:
    pacs(tmp_path, count=6)
    values = {"dataset": "pacs", "data_dir": str(tmp_path), "target_domain": "sketch", "img_size": 16}
    settings = tiny(**values, labels_per_class=1, batch_size=3, cache_dir=str(tmp_path / "cache"))
    expected = training.run(settings).result["top1"]
    folder = RunFolder(run_path(settings))
    folder.result_file.unlink()
    file = tmp_path / "pacs" / "splits" / "photo_crossval_kfold.txt"
    before = file.read_text()
    file.write_text(before.replace("pic_000", "pic_003"))
    with pytest.raises(UserError, match=r"started with a different split of the images \(train_x, train_u, val\)"):
        training.run(settings)
    file.write_text(before)
    folder.split_file.write_text("damaged")  # it is written again
    assert training.run(settings).result["top1"] == expected
    assert load_run(folder.path).folder.read_split()["val"]


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


def test_tables_warn_about_different_images(tmp_path: Path) -> None:
    from tests.report.write_run import write_run

    for seed, digest in ((1, "a" * 64), (2, "b" * 64), (3, "b" * 64)):
        write_run(tmp_path, 50, seed=seed, images_sha256=digest)
    (warning,) = read_records([tmp_path]).warnings
    assert warning == (
        "digits_mini: the images are not the same in all runs: SHA-256 bbbbbbbbbbbb (2 runs), aaaaaaaaaaaa (1 runs)"
    )


def test_a_run_copied_to_the_folder_of_another_seed_is_not_its_result(tiny: Tiny) -> None:
    first, second = tiny(seed=1), tiny(seed=2)
    training.run(first)
    shutil.copytree(run_path(first), run_path(second))
    refused = r"seed2: the folder contains another run of the same experiment; they differ in seed \(1 and 2\)"
    with pytest.raises(UserError, match=refused):
        training.run(second)
    with pytest.raises(UserError, match=refused):
        read_jobs({run_path(second): second})
    RunFolder(run_path(second)).result_file.unlink()
    with pytest.raises(UserError, match=refused):
        training.run(second)


def test_a_result_copied_to_another_seed_is_not_done(tiny: Tiny) -> None:
    first, second = tiny(seed=1), tiny(seed=2)
    for settings in (first, second):
        training.run(settings)
    shutil.copy(RunFolder(run_path(first)).result_file, run_path(second))
    with pytest.raises(UserError, match=r"seed2/config.yaml: changed since the run wrote it"):
        read_jobs({run_path(second): second})


@pytest.mark.parametrize("other", [{"seed": 2}, {"lr": 0.01, "variant": "slow"}, {"target_domain": "print"}])
def test_a_checkpoint_of_another_run_is_neither_resumed_nor_analysed(tiny: Tiny, other: dict[str, Any]) -> None:
    first, second = tiny(), tiny(**other)
    for settings in (first, second):
        training.run(settings)
    folder = RunFolder(run_path(second))
    shutil.copy(RunFolder(run_path(first)).checkpoint_file(4), folder.path)
    refused = f"00000004.pt: checkpoint of a different run .they differ in .*{next(iter(other))}"
    with pytest.raises(UserError, match=refused):
        load_model_without_images(load_run(folder.path), "cpu")
    folder.result_file.unlink()
    with pytest.raises(UserError, match=refused):
        training.run(second)


def test_the_split_of_a_foreign_run_may_be_incomplete(tmp_path: Path) -> None:
    from tests.report.write_run import write_run

    run = write_run(tmp_path, 80, config={"target_domain": "pen"})
    with pytest.raises(UserError, match=r"split.json: damaged \(KeyError: 'source_domains'\)"):
        load_model_without_images(load_run(run), "cpu")


def test_a_finished_run_with_a_result_of_another_form_is_named(tiny: Tiny) -> None:
    settings = tiny()
    training.run(settings)
    folder = RunFolder(run_path(settings))
    result = folder.read_result()
    folder.write_result({**result, "scale": {}})
    with pytest.raises(UserError, match=r"result.json: damaged: scale is \{\}, expected a name"):
        train_target(settings, "pen")
    folder.write_result({**result, "metrics": {}})
    with pytest.raises(UserError, match=r"result.json: damaged: no source_val/top1 in metrics"):
        read_trials({folder.path: settings}, [])
