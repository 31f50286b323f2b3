"""Sweeps with real processes: shared, killed, stopped, continued. Only the training is replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.runs.job import Job, Record, State, Status, read_record, read_status
from semilearn_ext.runs.local import assign_slots, summary, threads_per_run, visible_gpus
from semilearn_ext.runs.process_pool import Outcome, Pool, by_command
from tests.forked import wait_for
from tests.runs.light_sweep import STARTS, STEPS

SCRIPT = Path(__file__).with_name("light_sweep.py")
Sweep = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    def start(targets: str, seeds: str, steps: int, *slots: str) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT), str(tmp_path), targets, seeds, str(steps), *slots]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def folder(tmp_path: Path, target: str, seed: int) -> Path:
    return tmp_path / "digits_mini" / "10lpc" / "supervised" / target / f"seed{seed}"


def starts(path: Path) -> list[str]:
    file = path / STARTS
    return file.read_text().splitlines() if file.exists() else []


def steps(path: Path) -> int:
    return len((path / STEPS).read_text()) if (path / STEPS).exists() else 0


def test_two_sweeps_share_the_work_and_run_every_job_once(sweep: Sweep, tmp_path: Path) -> None:
    sweeps = [sweep("pen,print", "1,2,3,4", 20) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in sweeps]
    assert [process.returncode for process in sweeps] == [0, 0], outputs
    folders = [folder(tmp_path, target, seed) for target in ("pen", "print") for seed in (1, 2, 3, 4)]
    assert [len(starts(path)) for path in folders] == [1] * 8
    for output, _ in outputs:
        assert json.loads(output) == {str(path): ["done", ""] for path in folders}, "each sweep must wait for all jobs"
    assert not list(tmp_path.rglob("*.json.*")) + list(tmp_path.rglob("lock.json")) + list(tmp_path.rglob("job.json"))


def test_jobs_of_a_killed_sweep_are_neither_lost_nor_run_twice(sweep: Sweep, tmp_path: Path) -> None:
    first = sweep("pen", "1,2,3", 150)
    running = [folder(tmp_path, "pen", seed) for seed in (1, 2)]
    wait_for(lambda: all(steps(path) for path in running))
    first.kill()
    first.communicate()
    assert [read_status(path).state for path in running] == [State.RUNNING] * 2
    second = sweep("pen", "1,2,3", 150)
    assert json.loads(second.communicate(timeout=120)[0]).keys() == {str(folder(tmp_path, "pen", k)) for k in (1, 2, 3)}
    for seed in (1, 2, 3):
        assert read_status(folder(tmp_path, "pen", seed)).state is State.DONE
        assert len(starts(folder(tmp_path, "pen", seed))) == 1
        assert steps(folder(tmp_path, "pen", seed)) == 150


def test_a_killed_job_is_detected_and_resumes(sweep: Sweep, tmp_path: Path) -> None:
    first = sweep("pen", "1,2,3", 100)
    victim = folder(tmp_path, "pen", 1)
    wait_for(lambda: steps(victim) > 5)
    os.kill(int(starts(victim)[0].split()[0]), signal.SIGKILL)
    output = json.loads(first.communicate(timeout=120)[0])
    assert output[str(victim)] == ["stopped", "killed by SIGKILL"]
    assert [output[str(folder(tmp_path, "pen", seed))][0] for seed in (2, 3)] == ["done", "done"]
    assert read_status(victim).state is State.STOPPED
    before = steps(victim)
    assert sweep("pen", "1,2,3", 100).wait(timeout=120) == 0
    assert read_status(victim).state is State.DONE
    assert 5 < before < steps(victim) == 100
    assert len(starts(victim)) == 2


def test_a_failed_job_stops_no_other_job_and_is_not_run_again(sweep: Sweep, tmp_path: Path) -> None:
    closed = folder(tmp_path, "street", 1)
    output = json.loads(sweep("street,pen", "1,2", 5).communicate(timeout=120)[0])
    assert output[str(closed)] == ["failed", "the street is closed"]
    assert [output[str(folder(tmp_path, "pen", seed))][0] for seed in (1, 2)] == ["done", "done"]
    assert read_status(closed).record.attempts == 1
    assert (closed / "console.txt").read_text() == "error: the street is closed\n"
    assert sweep("street,pen", "1,2", 5).communicate(timeout=120)[0] == "{}\n"
    assert len(starts(closed)) == 1


def test_ctrl_c_lets_every_job_save_and_the_same_command_continues(sweep: Sweep, tmp_path: Path) -> None:
    first = sweep("pen", "1,2,3", 200)
    running = [folder(tmp_path, "pen", seed) for seed in (1, 2)]
    wait_for(lambda: all(steps(path) for path in running))
    first.send_signal(signal.SIGINT)
    _, errors = first.communicate(timeout=120)
    assert first.returncode == 130
    assert "stopped; 0 of 3 runs are done; re-run the same command to continue" in errors
    for path in running:
        assert read_record(path).state == "stopped"
        assert "stopped and saved" in (path / "console.txt").read_text()
    assert starts(folder(tmp_path, "pen", 3)) == []
    before = [steps(path) for path in running]
    assert sweep("pen", "1,2,3", 200).wait(timeout=120) == 0
    assert [len(starts(folder(tmp_path, "pen", seed))) for seed in (1, 2, 3)] == [2, 2, 1]
    assert all(0 < count < 200 for count in before)
    assert [steps(path) for path in running] == [200, 200]


def test_jobs_get_their_gpu(sweep: Sweep, tmp_path: Path) -> None:
    assert sweep("pen", "1,2", 30, "3", "5").wait(timeout=120) == 0
    assert {starts(folder(tmp_path, "pen", seed))[0].split()[1] for seed in (1, 2)} == {"3", "5"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((None, [], None), [None]),
        ((3, [], None), [None, None, None]),
        ((None, ["0", "1"], None), ["0", "1"]),
        ((None, ["0", "1"], 2), ["0", "1", "0", "1"]),
        ((3, ["0", "1"], 2), ["0", "1", "0"]),
        ((9, ["0"], 2), ["0", "0"]),
    ],
)
def test_slots_of_jobs_and_gpus(
    arguments: tuple[int | None, list[str], int | None], expected: list[str | None]
) -> None:
    assert assign_slots(*arguments) == expected


def test_contradictory_slots_are_refused() -> None:
    with pytest.raises(UserError, match="list the GPUs"):
        assign_slots(2, [], 2)
    with pytest.raises(UserError, match="lists a GPU twice"):
        assign_slots(None, ["0", "0"], None)


def test_runs_share_the_cores() -> None:
    cores = len(os.sched_getaffinity(0))
    assert [threads_per_run(slots) for slots in (1, cores, 10 * cores)] == [cores, 1, 1]


def test_the_summary_counts_jobs_by_state(tmp_path: Path) -> None:
    planned = [Job(tmp_path / str(number), Status(State.PENDING, Record())) for number in range(5)]
    pool = Pool(planned, [None], by_command())
    assert summary(pool) == "0/5 done, 5 pending"
    pool.outcomes[pool.waiting.popleft().folder] = Outcome(State.DONE)
    pool.outcomes[pool.waiting.popleft().folder] = Outcome(State.FAILED)
    pool.locked.append(pool.waiting.popleft())
    assert summary(pool) == "1/5 done, 1 failed, 1 locked by other processes, 2 pending"


def test_lines_are_printed_without_a_terminal(sweep: Sweep) -> None:
    _, errors = sweep("pen", "1,2", 2).communicate(timeout=120)
    lines = [re.sub(r"\d\d:\d\d", "00:00", line) for line in errors.splitlines()]
    title = "digits_mini/10lpc/supervised/pen/seed"
    assert {f"started  {title}{seed}" for seed in (1, 2)} <= set(lines)
    assert {f"done     {title}{seed} (00:00)" for seed in (1, 2)} <= set(lines)
    assert lines[-1] == "         2/2 done, about 00:00 left"


@pytest.mark.parametrize(
    ("gpus", "visible", "expected"),
    [
        (["0", "1"], None, ["0", "1"]),
        (["0"], "2,3", ["2"]),
        (["1", "0"], "2, 3", ["3", "2"]),
        (["1"], "GPU-8f2a,GPU-77b1", ["GPU-77b1"]),
        (["GPU-8f2a"], "GPU-8f2a,GPU-77b1", ["GPU-8f2a"]),
        ([], "2,3", []),
    ],
)
def test_gpus_are_counted_among_the_visible_ones(gpus: list[str], visible: str | None, expected: list[str]) -> None:
    assert visible_gpus(gpus, visible) == expected


@pytest.mark.parametrize(
    ("gpu", "visible"),
    [("2", "2,3"), ("0", ""), ("GPU-1", "GPU-8f2a"), ("0", "-1"), ("1", "2,-1,3"), ("0", "NoDevFiles")],
)
def test_a_gpu_that_is_not_visible_is_refused(gpu: str, visible: str) -> None:
    with pytest.raises(UserError, match=f"--gpus: there is no GPU {gpu}; with CUDA_VISIBLE_DEVICES={visible}, "):
        visible_gpus([gpu], visible)
