"""``ssdg sweep`` as users run it: plan, errors, real runs that fail, are killed and resume, status, retry."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from semilearn_ext.__main__ import main
from semilearn_ext.commands.argument_types import numbers
from semilearn_ext.errors import exit_code_of
from semilearn_ext.runs import slurm
from semilearn_ext.runs.job import Job, State, read_status
from tests.conftest import ROOT
from tests.forked import Forked, wait_for

CONFIG = ROOT / "config" / "ssdg" / "fixmatch_digits_mini.yaml"
QUICK = "batch_size: 6\nlabels_per_class: 5\nflip: false\ndevice: cpu\nnum_eval_iter: 1000\nalgorithm: supervised\n"


def start(*arguments: str, cwd: Path = ROOT) -> Forked:
    return Forked("sweep", *arguments, cwd=cwd)


def test_the_plan_is_listed_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = f"--c {CONFIG} --algorithms fixmatch,fixmatch_upcsc --targets all --seeds 1-5 --labels 10,5 --jobs 2"
    assert run(f"sweep {flags} --save_dir {tmp_path} --dry_run") == 0
    *listed, counted = capsys.readouterr().out.splitlines()
    assert listed[0] == f"pending  {tmp_path}/digits_mini/10lpc/fixmatch/pen/seed1"
    assert len(listed) == 80
    assert counted == "80 runs: 80 pending; 80 to run"
    assert list(tmp_path.iterdir()) == []


def run(line: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["semilearn_ext", *line.split()])
        return exit_code_of(main)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--seeds 5-1", "--seeds: '5-1' is an empty range"),
        ("--seeds one", "--seeds: expected numbers such as 1-5 or 1,3, got 'one'"),
        ("--jobs 0", "--jobs: expected a number from 1 to 10000, got '0'"),
        ("--seeds 1-3 --seed 2", "--seeds and --seed are both given"),
        ("--sede 3", "--sede: no such setting; did you mean 'seed"),
        ("stats runs", "invalid choice: 'stats'"),
        ("status", "status needs a folder: ssdg sweep status DIR"),
        ("status nowhere", "nowhere: no such folder"),
        ("run runs", "unexpected argument 'runs'; set the folder of the runs with --save_dir"),
        ("--targets pen --gpus 0,0", "--gpus: 0,0 lists a GPU twice"),
        ("--targets pen --jobs_per_gpu 2", "--jobs_per_gpu: list the GPUs"),
        ("--launcher slurm --time 5 --gpus_per_node 4", "--gpus_per_node 4: a run uses one GPU"),
        ("--targets pen --partition gpu", "--partition is an option of --launcher slurm"),
        ("--targets pen --launcher slurm --jobs 2", "--jobs is an option of --launcher local"),
        ("--targets pen --launcher slurm", "--launcher slurm needs a time limit per job"),
        ("--launcher slurm --time soon", "expected a time such as 90, 4:00:00"),
        ("--launcher slurm --sbatch account", "expected KEY=VALUE, got 'account'"),
        ("--lr fast", "--lr: expected a number, got 'fast'"),
    ],
)
def test_an_error_is_one_line(
    flags: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(f"sweep {flags}") == 2
    errors = capsys.readouterr().err
    assert expected in errors
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "expected"), [("1-3", [1, 2, 3]), ("1,3", [1, 3]), ("2", [2]), ("1-2,7", [1, 2, 7])])
def test_numbers_and_ranges_are_parsed(text: str, expected: list[int]) -> None:
    assert numbers(text) == expected


def test_a_killed_sweep_is_continued_and_failures_wait_for_retry(tmp_path: Path, cache_dir: Path) -> None:
    (tmp_path / "good.yaml").write_text(f"{QUICK}num_train_iter: 400\ncheckpoint_every: 5\ntarget_domain: pen\n")
    (tmp_path / "bad.yaml").write_text(f"{QUICK}dataset: pacs\ntarget_domain: photo\ndata_dir: nowhere\n")
    flags = ("--c", "bad.yaml", "good.yaml", "--jobs", "2", "--save_dir", "runs", "--cache_dir", str(cache_dir))
    good = tmp_path / "runs" / "digits_mini" / "5lpc" / "supervised" / "pen" / "seed1"
    bad = tmp_path / "runs" / "pacs" / "5lpc" / "supervised" / "photo" / "seed1"

    first = start(*flags, cwd=tmp_path)
    wait_for(lambda: list(good.glob("checkpoint_*")))
    holder = read_status(good).holder
    assert holder is not None
    first.kill()
    os.kill(holder.pid, signal.SIGKILL)
    assert "2 runs: 2 pending; 2 to run" in first.communicate()[0]
    wait_for(lambda: read_status(good).state is State.STOPPED)
    wait_for(lambda: read_status(bad).state is State.FAILED)
    progress = start("status", "runs", cwd=tmp_path).communicate()[0]
    assert f"failed: {bad.relative_to(tmp_path)}: data_dir: no pacs in nowhere" in progress
    assert progress.endswith("2 runs: 1 failed, 1 stopped\n")

    second = start(*flags, cwd=tmp_path)
    output, errors = second.communicate()
    assert second.returncode == 2
    assert "2 runs: 1 failed, 1 stopped; 1 to run" in output
    assert "    error: data_dir: no pacs in nowhere" in output, "the last lines of its output must be shown"
    assert output.endswith("2 runs: 1 done, 1 failed\nThe runs are in runs\nWrite tables with: ssdg tables runs\n")
    assert errors.endswith("error: 1 of 2 runs failed (see above); run them again with: ssdg sweep retry runs\n")
    assert read_status(bad).record.attempts == 1
    assert "resuming after iteration" in (good / "log.txt").read_text()
    assert json.loads((good / "result.json").read_text())["iterations"] == 400
    assert not {"lock.json", "job.json", "state.json"} & {path.name for path in good.iterdir()}

    retried = start("retry", str(tmp_path / "runs"))
    assert "2 runs: 1 done, 1 failed; 1 to run" in retried.communicate()[0]
    assert retried.returncode == 2
    assert read_status(bad).record.attempts == 2


@pytest.mark.parametrize(
    ("flags", "cores"), [("", 1), ("--num_workers 3", 7), ("--num_workers 3 --cpus_per_task 2", 2)]
)
def test_a_slurm_job_gets_the_cores_that_it_can_use(
    flags: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One to train, and one for each process of the two loaders, unless the user says otherwise."""
    requests = []

    def submit(chosen: list[Job], request: slurm.Request, logs: Path) -> list[str]:
        requests.append(request)
        return [f"7_{number}" for number, _ in enumerate(chosen)]

    monkeypatch.setattr(slurm, "submit", submit)
    monkeypatch.setattr(slurm, "queued_ids", set)
    line = f"sweep --launcher slurm --time 5 --gpus_per_node 1 --targets pen --save_dir {tmp_path} {flags}"
    assert run(line) == 0
    assert [request.parameters()["cpus_per_task"] for request in requests] == [cores]


@pytest.mark.parametrize("flags", ["--gpus 0", ""])
def test_gpus_on_a_machine_without_one_are_a_warning(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr("semilearn_ext.runs.process_pool.GPU_DRIVERS", (str(tmp_path / "absent"),))
    monkeypatch.setattr("semilearn_ext.runs.local.run", lambda *_: None)
    assert run(f"sweep --targets pen --save_dir {tmp_path} {flags}") == 2  # nothing was run
    messages = [str(warning.message) for warning in recwarn if "--gpus" in str(warning.message)]
    expected = ["--gpus: no NVIDIA or AMD GPU driver was found; the runs will use the CPU"] if flags else []
    assert messages == (expected if sys.platform == "linux" else [])
