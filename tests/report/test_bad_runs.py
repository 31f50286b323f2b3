"""Results that cannot be trusted are named and left out, without affecting the others."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.report.build import build
from semilearn_ext.report.evaluations import curves
from semilearn_ext.report.excerpts import update
from semilearn_ext.report.provenance import environments
from semilearn_ext.report.records import read_records
from tests.hostile.commands import call
from tests.report.write_run import write_run


def change(path: Path, **values: Any) -> None:
    file = path / "result.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def without(path: Path, name: str) -> None:
    result = json.loads((path / "result.json").read_text())
    del result[name]
    (path / "result.json").write_text(json.dumps(result))


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "half-written": (lambda p: (p / "result.json").write_text('{"dataset": "dig'), "cannot be read"),
    "empty": (lambda p: (p / "result.json").write_text(""), "cannot be read"),
    "not text": (lambda p: (p / "result.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "another tool's": (lambda p: (p / "result.json").write_text('{"loss": 0.1}'), "not a result of format 2"),
    "older": (lambda p: without(p, "format"), "not a result of format 2"),
    "newer": (lambda p: change(p, format=3), "not a result of format 2"),
    "a list": (lambda p: (p / "result.json").write_text("[1, 2]"), "expected a JSON object"),
    "a field lost": (lambda p: without(p, "config_hash"), "no config_hash"),
    "a protocol lost": (
        lambda p: change(p, top1={"last": 0.5}),
        "top1 is {'last': 0.5}, expected shares between 0 and 1 for last, source_val, oracle",
    ),
    "NaN": (lambda p: change(p, top1={"last": float("nan"), "source_val": 0.5, "oracle": 0.5}), "top1 is {'last': nan"),
    "infinite": (lambda p: change(p, seconds=float("inf")), "seconds is inf"),
    "percent": (lambda p: change(p, top1={"last": 75.0, "source_val": 0.5, "oracle": 0.5}), "between 0 and 1"),
    "a word": (lambda p: change(p, top1={"last": "high", "source_val": 0.5, "oracle": 0.5}), "top1 is {'last': 'high'"),
    "null": (lambda p: change(p, top1=None), "top1 is None"),
    "seed": (lambda p: change(p, seed="one"), "seed is 'one'"),
    "plug-ins": (lambda p: change(p, plugins="upcsc"), "plugins is 'upcsc', expected a list of names"),
    "metrics": (lambda p: change(p, metrics={"train/upc": "low"}), "expected numbers by name"),
    "truth": (lambda p: change(p, seed=True), "seed is True"),
    "domain": (lambda p: change(p, target_domain="moon"), "'moon' is not a domain of digits_mini"),
    "moved": (lambda p: change(p, seed=2), "is the result of a different run, digits_mini/10lpc/fixmatch/street/seed2"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_result_is_named_and_left_out(name: str, run: Callable[..., Path], tmp_path: Path) -> None:
    damage, words = BAD[name]
    bad = run(99, target_domain="street")
    good = run(80, target_domain="pen")
    damage(bad)
    records = read_records([tmp_path / "runs"])
    assert list(records.runs["path"]) == [good]
    assert len(records.warnings) == 1
    assert str(bad / "result.json") in records.warnings[0]
    assert words in records.warnings[0]
    assert records.warnings[0].endswith("; left out")


def test_the_same_result_twice_counts_once(run: Callable[..., Path], tmp_path: Path) -> None:
    path = run(80)
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    records = read_records([tmp_path / "runs", tmp_path / "copy"])
    assert list(records.runs["path"]) == [path]
    assert "same result as" in records.warnings[0]


def test_two_results_of_one_run_that_differ_are_both_left_out(run: Callable[..., Path], tmp_path: Path) -> None:
    path = run(80)
    shutil.copytree(tmp_path / "runs", tmp_path / "copy")
    change(
        tmp_path / "copy" / path.relative_to(tmp_path / "runs"), top1={"last": 0.7, "source_val": 0.7, "oracle": 0.7}
    )
    records = read_records([tmp_path / "runs", tmp_path / "copy"])
    assert records.runs.empty
    assert "different results of the same run (0.8000, 0.7000); all left out" in records.warnings[0]


def test_a_folder_that_is_given_twice_counts_once(run: Callable[..., Path], tmp_path: Path) -> None:
    path = run(80)
    os.symlink(tmp_path / "runs", tmp_path / "link")
    os.symlink(tmp_path / "runs", path.parents[1] / "circle")
    records = read_records([tmp_path / "runs", path, tmp_path / "link"])
    assert (len(records.runs), records.warnings) == (1, [])


def test_unfinished_runs_are_counted(run: Callable[..., Path], tmp_path: Path) -> None:
    run(80)
    (run(80, seed=2) / "result.json").unlink()
    (tmp_path / "runs" / "elsewhere").mkdir()
    (tmp_path / "runs" / "elsewhere" / "config.yaml").write_text("of: something else")
    records = read_records([tmp_path / "runs"])
    assert (len(records.runs), records.warnings) == (1, [])
    assert records.unfinished[["dataset", "target"]].to_numpy().tolist() == [["digits_mini", "pen"]]
    assert [path.name for path in records.unfinished["path"]] == ["seed2"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read_records([tmp_path / "nowhere"])


def test_folders_without_finished_runs_are_refused(run: Callable[..., Path], tmp_path: Path) -> None:
    (run(80) / "result.json").unlink()
    with pytest.raises(UserError, match=r"no finished runs \(1 unfinished\)"):
        build([tmp_path / "runs"], ["summary"], (), "last")


def test_comparing_a_method_without_runs_is_refused(tree: Path) -> None:
    with pytest.raises(UserError, match=r"no finished runs of 'freematsh'; did you mean 'freematch'\?"):
        build([tree], [], ("fixmatch", "freematsh"), "last")


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"epoch": 1.0}\n',
        '{"epoch": 1, "target/top1": NaN, "source_val/top1": 0.1, "unlabeled/top1": 0.1}\n',
        "[]\n",
    ],
)
def test_invalid_evaluations_are_left_out_of_the_curves(text: str, run: Callable[..., Path], tmp_path: Path) -> None:
    (run(80) / "metrics.jsonl").write_text(text)
    run(80, target_domain="texture")
    built = build([tmp_path / "runs"], ["by_target"], (), "last")
    assert [warning for warning in built.warnings if ": its evaluations are missing, damaged or contain NaN" in warning]
    assert curves(built.results.evaluations, built.results.targets) == []
    assert built.tables[0].panels[0].rows[0][1].text == "80.0 [n=1]"


def test_a_curve_is_over_complete_seeds_and_interpolated_between_evaluations(
    complete_seeds: Callable[..., None], run: Callable[..., Path], tmp_path: Path
) -> None:
    complete_seeds(70, seeds=(1, 2))
    run(99, seed=3)
    for path in (tmp_path / "runs").rglob("pen/seed*/metrics.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        path.write_text(lines[0] + lines[2])
    built = build([tmp_path / "runs"], ["summary"], (), "last")
    (curve,) = curves(built.results.evaluations, built.results.targets)
    assert (curve.seeds, curve.epochs) == (2, [1.0, 2.0, 3.0])
    assert curve.mean["target/top1"] == pytest.approx([51.5, 61.5, 71.5])
    assert curve.std["target/top1"] == pytest.approx([0.707, 0.707, 0.707])


def test_a_method_without_unlabelled_images_has_the_other_curves(
    complete_seeds: Callable[..., None], tmp_path: Path
) -> None:
    complete_seeds(70, seeds=(1, 2), base="erm")
    for path in (tmp_path / "runs").rglob("metrics.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        kept = [{name: value for name, value in line.items() if not name.startswith("unlabeled")} for line in lines]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    built = build([tmp_path / "runs"], ["summary"], (), "last")
    assert built.warnings == []
    (curve,) = curves(built.results.evaluations, built.results.targets)
    assert set(curve.mean) == {"target/top1", "source_val/top1"}


@pytest.mark.parametrize(
    "values",
    [
        {"title": "a\nb"},
        {"title": "\x1b[31m"},
        {"title": "x" * 10_000},
        {"variant": "/../../x"},
        {"plugins": ["../x"]},
        {"metrics": {"target/top1": 1.5}},
        {"seed": 10**40},
    ],
)
def test_fields_that_no_run_writes_are_named_and_left_out(
    values: dict[str, Any], run: Callable[..., Path], tmp_path: Path
) -> None:
    good, bad = run(80), run(90, target_domain="street")
    change(bad, **values)
    records = read_records([tmp_path / "runs"])
    assert list(records.runs["path"]) == [good]
    assert f"damaged: {next(iter(values))} is " in records.warnings[0]
    assert len(records.warnings[0]) < 1000


def test_accuracies_above_one_are_not_drawn(run: Callable[..., Path], tmp_path: Path) -> None:
    (run(80) / "metrics.jsonl").write_text('{"epoch": 1, "target/top1": 0.5, "source_val/top1": 1.5}\n')
    run(80, target_domain="texture")
    built = build([tmp_path / "runs"], ["by_target"], (), "last")
    assert any("not in the curves" in warning for warning in built.warnings)


@pytest.mark.parametrize("command", ["gains", "claims"])
def test_every_report_names_the_runs_that_it_leaves_out(tmp_path: Path, command: str) -> None:
    for plugins in ([], ["upcsc"]):
        write_run(tmp_path / "runs", 80, plugins=plugins)
    bad = write_run(tmp_path / "runs", 80, seed=2) / "result.json"
    bad.write_text("[")
    words = {"gains": ["analyse", "gains", "runs", "--out", "out"], "claims": ["claims", "runs", "--out", "out.md"]}
    outcome = call(words[command], tmp_path)
    assert outcome.code == 0
    assert "seed2/result.json: cannot be read" in outcome.output + outcome.errors


def test_a_table_in_a_markdown_file_names_the_runs_that_it_leaves_out(tmp_path: Path) -> None:
    for plugins in ([], ["upcsc"]):
        write_run(tmp_path / "runs", 80, plugins=plugins)
    bad = write_run(tmp_path / "runs", 80, seed=2) / "result.json"
    bad.write_text("[")
    with pytest.warns(UserWarning, match=r"seed2/result.json: cannot be read"):
        text = update(f"<!-- glance: {tmp_path / 'runs'} fixmatch -->\n<!-- end of table -->\n", "README.md")
    assert "| FixMatch |" in text


@pytest.mark.parametrize("packages", [3, [1], "torch", None])
def test_an_environment_of_another_form_is_not_recorded(tmp_path: Path, packages: Any) -> None:
    run = write_run(tmp_path, 80)
    (run / "environment.json").write_text(json.dumps({"packages": packages}))
    assert environments(read_records([tmp_path]).runs) == {"environment": {"not recorded": 1}}
