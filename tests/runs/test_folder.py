"""A run's folder is never overwritten by another experiment, and its files are whole or absent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from semilearn_ext import training
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.result import accuracies, summarise
from semilearn_ext.settings import Settings, config_hash

Tiny = Callable[..., Settings]


def test_the_path_says_what_the_run_is(tiny: Tiny) -> None:
    path = run_path(tiny(algorithm="freematch", target_domain="street", seed=3))
    assert path.parts[-5:] == ("digits_mini", "5lpc", "freematch", "street", "seed3")


def test_a_variant_has_a_folder_and_a_name_of_its_own(tiny: Tiny) -> None:
    settings = tiny(p_cutoff=0.5, variant="low")
    assert run_path(settings).parts[-3] == "fixmatch_low"
    assert summarise(settings, records((0.5, 0.4)), "reduced")["algorithm"] == "fixmatch_low"


def test_the_same_experiment_may_come_back(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.claim(tiny())
    folder.append_metrics({"iteration": 1})
    folder.claim(tiny(num_workers=3))
    assert folder.read_metrics() == [{"iteration": 1}]


def test_another_experiment_is_refused_and_nothing_is_lost(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.claim(tiny())
    folder.append_metrics({"iteration": 1})
    with pytest.raises(UserError, match=f"another config .*{config_hash(tiny())}.*--overwrite"):
        folder.claim(tiny(lr=0.5))
    assert folder.read_metrics() == [{"iteration": 1}]


def test_overwrite_starts_over(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.claim(tiny())
    folder.append_metrics({"iteration": 1})
    folder.claim(tiny(lr=0.5, overwrite=True))
    assert folder.read_metrics() == []


def test_a_folder_of_something_else_is_refused(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.path.mkdir(parents=True)
    (folder.path / "thesis.tex").write_text("dear")
    with pytest.raises(UserError, match="not a run's"):
        folder.claim(tiny())
    assert (folder.path / "thesis.tex").read_text() == "dear"


def test_what_lies_around_a_run_does_not_make_a_folder_foreign_and_stays(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.path.mkdir(parents=True)
    for name in ("job.json", "state.json", "console.txt", "lock.json", ".config.yaml.123.tmp"):
        (folder.path / name).write_text("{}")
        os.utime(folder.path / name, (0, 0))
    folder.claim(tiny())
    (folder.path / "tensorboard").mkdir()
    folder.claim(tiny(lr=0.5, overwrite=True))
    left = {path.name for path in folder.path.iterdir()}
    assert left == {"job.json", "state.json", "console.txt", "lock.json", "config.yaml"}


def test_what_somebody_trains_is_never_thrown_away(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.claim(tiny())
    folder.append_metrics({"iteration": 1})
    code = "import sys; from pathlib import Path; from semilearn_ext.runs.lock import hold\n"
    code += "with hold(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(folder.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        for settings in (tiny(), tiny(overwrite=True)):
            with pytest.raises(UserError, match=f"is being trained by process {other.pid} on "):
                training.run(settings)
        assert folder.read_metrics() == [{"iteration": 1}]
        other.communicate("")
    assert not (folder.path / "lock.json").exists()


def test_evaluations_after_the_checkpoint_and_half_lines_are_forgotten(tiny: Tiny) -> None:
    folder = RunFolder(run_path(tiny()))
    folder.claim(tiny())
    for iteration in (2, 4, 6):
        folder.append_metrics({"iteration": iteration})
    with folder.metrics_file.open("a") as file:
        file.write('{"iteration": 8, "tar')
    folder.rewind_metrics(4)
    assert [json.loads(line)["iteration"] for line in folder.metrics_file.read_text().splitlines()] == [2, 4]


def records(*pairs: tuple[float, float]) -> list[dict[str, float]]:
    return [
        {"iteration": k + 1, "source_val/top1": source, "target/top1": target, "seconds": 1.0}
        for k, (source, target) in enumerate(pairs)
    ]


def test_three_protocols() -> None:
    metrics = records((0.5, 0.90), (0.8, 0.60), (0.8, 0.65), (0.7, 0.70))
    assert accuracies(metrics) == {"last": 0.70, "source_val": 0.65, "oracle": 0.90}


def test_the_result_has_what_the_reporter_reads(tiny: Tiny) -> None:
    result = summarise(tiny(seed=3), records((0.5, 0.4)), "reduced")
    assert list(result) == [
        *("dataset", "labels_per_class", "algorithm", "target_domain", "seed", "iterations"),
        *("top1", "seconds", "config_hash", "version", "scale"),
    ]
    assert (result["seed"], result["iterations"], result["scale"]) == (3, 1, "reduced")
