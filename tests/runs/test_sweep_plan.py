"""The plan of a sweep: every combination once, its state, and errors before anything is started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.registry import DATASETS
from semilearn_ext.runs import sweep
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.job import State
from semilearn_ext.runs.ownership import claim
from semilearn_ext.runs.result import FORMAT
from semilearn_ext.runs.sweep import Grid, experiments, find, read_jobs
from semilearn_ext.settings import Settings
from tests.conftest import ROOT

CONFIG = ROOT / "config" / "ssdg" / "digits_mini.yaml"


def grid(tmp_path: Path, **values: Any) -> Grid:
    overrides = {"save_dir": str(tmp_path), **values.pop("overrides", {})}
    return Grid(**{"configs": [CONFIG], "overrides": overrides, **values})


def described(runs: dict[Path, Settings]) -> list[tuple[Any, ...]]:
    return [(s.labels_per_class, s.seed, s.method, s.target_domain) for s in runs.values()]


def test_every_combination_is_planned_once_and_first_seeds_come_first(tmp_path: Path) -> None:
    runs = experiments(
        grid(tmp_path, algorithms=["fixmatch", "fixmatch_upcsc"], targets=["all"], seeds=[1, 2, 3], labels=[5, 10])
    )
    assert described(runs) == [
        (labels, seed, method, target)
        for labels in (10, 5)
        for seed in (1, 2, 3)
        for method in ("fixmatch", "fixmatch_upcsc")
        for target in DATASETS.get("digits_mini", "test").domains
    ]
    assert len(runs) == 48


def test_values_not_given_come_from_the_config(tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text(f"base: {CONFIG}\ntarget_domain: print\nseed: 7\nlr: 0.5\n")
    (run,) = experiments(grid(tmp_path, configs=[config])).values()
    assert (run.target_domain, run.seed, run.lr, run.algorithm) == ("print", 7, 0.5, "fixmatch")


def test_options_apply_to_all_of_several_configs(tmp_path: Path) -> None:
    variant = tmp_path / "low.yaml"
    variant.write_text(f"base: {CONFIG}\np_cutoff: 0.5\nvariant: low\n")
    runs = experiments(grid(tmp_path, configs=[CONFIG, variant], targets=["pen"], overrides={"lr": "0.2"}))
    assert [(s.method, s.lr, s.options["p_cutoff"]) for s in runs.values()] == [
        ("fixmatch", 0.2, 0.95),
        ("fixmatch--low", 0.2, 0.5),
    ]


def test_two_experiments_for_one_folder_are_refused(tmp_path: Path) -> None:
    lower_threshold = tmp_path / "low.yaml"
    lower_threshold.write_text(f"base: {CONFIG}\np_cutoff: 0.5\n")
    with pytest.raises(
        UserError,
        match=r"two different experiments share this folder; they differ in p_cutoff \(0.95 and 0.5\); set 'variant'",
    ):
        experiments(grid(tmp_path, configs=[CONFIG, lower_threshold], targets=["pen"]))


def test_all_domains_of_an_image_folder_are_targets(tmp_path: Path) -> None:
    for name in ("red", "green", "blue"):
        (tmp_path / "images" / name).mkdir(parents=True)
    overrides = {"dataset": "folder", "data_dir": str(tmp_path / "images")}
    runs = experiments(grid(tmp_path, targets=["all"], overrides=overrides))
    assert [s.target_domain for s in runs.values()] == ["blue", "green", "red"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"targets": ["pencil"]}, "'pencil' is not a domain of digits_mini"),
        ({"algorithms": ["fixmach"]}, "'fixmach' is not a known algorithm; did you mean 'fixmatch'?"),
        ({"labels": [0]}, "labels_per_class: must be at least 1"),
        ({"overrides": {"batch_size": 50}}, "50 is not divisible by the 3 source domains; try 51"),
        ({"overrides": {"source_domains": "pen"}, "targets": ["pen"]}, "'pen' is the target and cannot be a source"),
        ({"overrides": {"dataset": "pasc"}}, "'pasc' is not a known dataset; did you mean 'pacs'?"),
        ({"overrides": {"overwrite": True}}, "overwrite: a sweep does not overwrite runs"),
        ({"overrides": {"upc_weight": 1}}, "not an option of fixmatch; it belongs to upc, upcsc"),
        ({"configs": [Path("no.yaml")]}, "no.yaml: no such config file"),
    ],
)
def test_errors_are_reported_before_anything_is_written(tmp_path: Path, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError) as raised:
        read_jobs(experiments(grid(tmp_path / "runs", **values)))
    assert expected in str(raised.value)
    assert not (tmp_path / "runs").exists()


def test_states_are_read_and_another_experiment_is_refused(tmp_path: Path) -> None:
    runs = experiments(grid(tmp_path, targets=["all"]))
    done, stopped, *_ = runs
    for path in (done, stopped):
        claim(RunFolder(path), runs[path])
    RunFolder(done).write_result({"format": FORMAT, "seconds": 1})
    RunFolder(stopped).append_metrics({"iteration": 1})
    assert [job.status.state for job in read_jobs(runs)] == [State.DONE, State.STOPPED, State.PENDING, State.PENDING]
    assert sweep.count(read_jobs(runs)) == "4 runs: 1 done, 1 stopped, 2 pending"
    assert {job.folder for job in find(tmp_path)} == {done, stopped}
    for path in (done, stopped):
        other = experiments(grid(tmp_path, targets=[runs[path].target_domain], overrides={"lr": "0.7"}))
        with pytest.raises(UserError, match="contains a run with a different config"):
            read_jobs(other)


@pytest.mark.parametrize("content", ['{"seconds": 1', "[]", ""])
def test_a_damaged_result_is_named(tmp_path: Path, content: str) -> None:
    runs = experiments(grid(tmp_path, targets=["pen"]))
    (path,) = runs
    claim(RunFolder(path), runs[path])
    (path / "result.json").write_text(content)
    with pytest.raises(UserError, match=r"seed1/result.json: "):
        read_jobs(runs)


def test_a_folder_without_runs_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        find(tmp_path / "nowhere")
    with pytest.raises(UserError, match="contains no runs"):
        find(tmp_path)


def test_a_thousand_runs_are_planned_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom semilearn_ext.__main__ import main\nmain()\n"
        "print({'torch', 'semilearn', 'pandas', 'matplotlib', 'submitit'} & set(sys.modules))"
    )
    flags = [
        "--c",
        str(CONFIG),
        "--algorithms",
        "supervised,fixmatch,freematch,flexmatch,softmatch",
        "--targets",
        "all",
    ]
    flags += ["--seeds", "1-25", "--labels", "10,5", "--step", "usb", "--save_dir", str(tmp_path), "--dry_run"]
    command = [sys.executable, "-c", code, "sweep", *flags]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    *runs, summary, imported = process.stdout.splitlines()
    assert len(set(runs)) == 1000
    assert summary == "1000 runs: 1000 pending; 1000 to run"
    assert imported == "set()"
    assert not list(tmp_path.iterdir())


def test_a_planned_run_keeps_its_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from semilearn_ext.runs import job

    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    runs = experiments(Grid(overrides={"save_dir": "runs", "target_domain": "pen"}))
    ((path, settings),) = runs.items()
    job.write_plan(path, settings)
    folder = path.resolve()
    monkeypatch.chdir(second)
    assert job.enter_plan(folder) == settings
    assert Path.cwd() == first
    (folder / "job.json").write_text(json.dumps({"cwd": str(second), "settings": settings.flat()}))
    with pytest.raises(UserError, match="was planned for"):
        job.enter_plan(folder)
    (folder / "job.json").unlink()
    with pytest.raises(UserError, match="plan the run again"):
        job.enter_plan(folder)


def test_usb_names_all_of_usbs_algorithms(tmp_path: Path) -> None:
    runs = experiments(grid(tmp_path, algorithms=["usb", "usb_upcsc"], targets=["pen"], seeds=[1]))
    bases = {s.base for s in runs.values() if not s.plugins}
    with_plugin = {s.base for s in runs.values() if s.plugins == ("upcsc",)}
    assert {"fixmatch", "mixmatch", "vat", "supervised"} <= bases
    assert not bases & {"erm", "stylematch"}, "these are not USB's"
    assert {"fixmatch", "freematch", "comatch"} <= with_plugin <= bases
    assert not with_plugin & {"mixmatch", "vat", "supervised"}, "these support no plug-ins"
    assert len(runs) == len(bases) + len(with_plugin)


def test_a_group_with_an_unknown_plugin_is_an_unknown_algorithm(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'usb_upscs' is not a known algorithm"):
        experiments(grid(tmp_path, algorithms=["usb_upscs"]))
