"""Which runs can be analysed, and which can be compared."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.analysis.load_run import (
    FinishedRun,
    check_comparable,
    comparison_title,
    load_run,
    load_runs,
    titles_of,
)
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import dump, with_values


@pytest.fixture
def copied(pair: tuple[FinishedRun, FinishedRun], tmp_path: Path) -> Any:
    """A copy of the second run with other settings."""

    def copy(**values: Any) -> FinishedRun:
        folder = tmp_path / "copy"
        shutil.copytree(pair[1].path, folder)
        (folder / "config.yaml").write_text(dump(with_values(pair[1].settings, **values)))
        _write_checksums(RunFolder(folder))
        return load_run(folder)

    return copy


def _write_checksums(folder: RunFolder) -> None:
    """Update the checksums, as if the run had written the current files."""
    folder.write_result({**folder.read_result(), "files_sha256": folder.file_hashes()})


def test_runs_that_differ_only_in_the_method_can_be_compared(pair: tuple[FinishedRun, FinishedRun]) -> None:
    check_comparable(pair)
    assert titles_of(pair) == ["FixMatch", "FixMatch + UPCSC"]
    assert titles_of([pair[0], pair[0]]) == ["FixMatch (1)", "FixMatch (2)"]


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"target_domain": "street"}, "the target domain differs (pen and street)"),
        ({"net": "resnet18"}, "the backbone differs (cnn, from scratch and resnet18, from scratch)"),
        ({"net": "resnet18", "pretrained": True}, "cnn, from scratch and resnet18, pretrained"),
        ({"img_size": 64}, "the image size differs (32 px and 64 px)"),
        ({"labels_per_class": 10}, "the number of labels per class differs (5 and 10)"),
        ({"dataset": "pacs"}, "the dataset differs (digits_mini and pacs)"),
        ({"source_domains": "print,street"}, "the set of source domains differs (all others and print, street)"),
        ({"seed": 2}, "the seed differs (1 and 2)"),
        ({"step": "reference"}, "the training step differs (usb and reference)"),
        (
            {"num_train_iter": 400},
            "the schedule differs (40 iterations of 30 + 30 images per step, cosine per epoch and",
        ),
        ({"num_train_iter": 0, "epoch": 10}, "and 10 epochs of 30 + 30 images per step, cosine per epoch)"),
        ({"uratio": 2}, "and 40 iterations of 30 + 60 images per step, cosine per epoch)"),
        ({"lr_schedule": "constant"}, "and 40 iterations of 30 + 30 images per step, constant per epoch)"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_with_the_reason(
    values: dict[str, Any], reason: str, copied: Any, pair: tuple[FinishedRun, FinishedRun]
) -> None:
    with pytest.raises(UserError, match="cannot be compared") as caught:
        check_comparable([pair[0], copied(**values)])
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_labelled_images_are_refused(copied: Any, pair: tuple[FinishedRun, FinishedRun]) -> None:
    other = copied()
    split = other.folder.read_split()
    split["train_x"][0][0] = "texture/0/another"
    (other.path / "split.json").write_text(json.dumps(split))
    with pytest.raises(UserError, match="the set of labelled images differs"):
        check_comparable([pair[0], other])


def test_a_run_that_is_given_twice_is_refused(pair: tuple[FinishedRun, FinishedRun]) -> None:
    with pytest.raises(UserError, match="the run is given twice; pass it once"):
        check_comparable([pair[0], pair[0]])


def test_another_scale_is_refused(copied: Any, pair: tuple[FinishedRun, FinishedRun]) -> None:
    other = copied()
    other.folder.write_result({**other.result, "scale": "paper"})
    with pytest.raises(UserError, match=r"the scale differs \(reduced and paper\)"):
        check_comparable([pair[0], load_run(other.path)])


def test_what_is_compared_has_a_title(pair: tuple[FinishedRun, FinishedRun]) -> None:
    title = comparison_title(pair)
    for part in ("digits_mini", "5 labels", "target: pen", "seed 1", "40 iterations", "usb step", "reduced scale"):
        assert part in title


def test_an_unfinished_run_is_refused(copied: Any) -> None:
    path = copied().path
    (path / "result.json").unlink()
    with pytest.raises(UserError, match=r"copy: the run is not finished; re-run its training command"):
        load_run(path)
    with pytest.raises(UserError, match="not finished"):
        load_runs([path.parent])


def test_a_missing_checkpoint_and_a_folder_without_a_run_are_named(copied: Any, tmp_path: Path) -> None:
    run = copied()
    next(run.path.glob("checkpoint_*.pt")).unlink()
    with pytest.raises(UserError, match=r"checkpoint_00000040\.pt: the checkpoint of a finished run is missing"):
        run.checkpoint_file()
    with pytest.raises(UserError, match=r"not a run \(config\.yaml is missing\)"):
        load_run(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="contains no runs"):
        load_runs([tmp_path / "empty"])


def test_runs_below_folders_are_found_once_each(pair: tuple[FinishedRun, FinishedRun]) -> None:
    methods = [run.path.parents[1] for run in pair]
    loaded = load_runs([*methods, pair[0].path])
    assert {run.path for run in pair} <= {run.path for run in loaded}
    assert len({run.path for run in loaded}) == len(loaded)
