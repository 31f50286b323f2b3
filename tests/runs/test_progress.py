"""A sweep reports the progress of its runs, and their accuracies at the end."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from semilearn_ext.runs import local, progress
from semilearn_ext.runs.folder import RunFolder
from tests.report.write_run import write_run


def test_final_accuracies_of_every_method_and_target(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path, accuracy, target_domain=target, seed=seed)
        for accuracy, target, seed in ((60, "pen", 1), (70, "pen", 2), (80, "print", 1))
    ]
    folders.append(write_run(tmp_path, 50, plugins=["upcsc"]))
    (folders[-1] / "console.txt").touch()
    damaged = write_run(tmp_path, 50, seed=9)
    (damaged / "result.json").write_text("{")
    other_forms = [write_run(tmp_path, 50, seed=10), write_run(tmp_path, 50, seed=11)]
    for folder, field in zip(other_forms, ({"title": {}}, {"top1": {"last": "0.5"}}), strict=True):
        (folder / "result.json").write_text(json.dumps({**RunFolder(folder).read_result(), **field}))
    assert progress.accuracies([*folders, damaged, *other_forms]) == [
        "FixMatch on digits_mini, 10 labels per class: 72.5 (pen 65.0, print 80.0; 3 runs)",
        "FixMatch + UPCSC on digits_mini, 10 labels per class: 50.0 (pen 50.0; 1 run)",
    ]
    assert progress.final(folders[0]) == "target 60.0%"
    assert progress.final(damaged) == ""


def test_the_progress_of_a_run_is_shown(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "fixmatch" / "pen" / "seed1")
    folder.path.mkdir(parents=True)
    assert progress.reached(folder.path) == ""
    folder.append_metrics({"iteration": 20, "target/top1": 0.5})
    folder.append_metrics({"iteration": 40, "target/top1": 0.6831})
    assert progress.reached(folder.path) == "iteration 40, target 68.3%"
    pool = SimpleNamespace(running=[SimpleNamespace(job=SimpleNamespace(folder=folder.path))])
    assert local._Progress().lines(pool) == ["fixmatch/pen/seed1: iteration 40, target 68.3%"]  # type: ignore[arg-type]
    folder.metrics_file.write_text("[1]\n")
    assert progress.reached(folder.path) == ""
