"""Jobs forked after the imports continue when the sweep is killed, and Ctrl-C stops them cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from semilearn_ext.runs.job import State, read_status
from semilearn_ext.runs.process_pool import job_command
from tests.conftest import ROOT
from tests.forked import wait_for

SCRIPT = Path(__file__).with_name("light_sweep.py")
SLOW = "import pathlib, time\npathlib.Path(__file__).with_name('importing').touch()\ntime.sleep(3)\n"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sweeps fork on Linux only")


def start(tmp_path: Path, steps: int) -> subprocess.Popen[str]:
    """In a separate process group, like the foreground process of a terminal."""
    (tmp_path / "slow_module.py").write_text(SLOW)
    environment = {**os.environ, "LIGHT_PRELOAD": "slow_module", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, str(SCRIPT), str(tmp_path / "runs"), "pen", "1,2", str(steps)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True)


def test_a_job_imports_nothing_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "yaml.py").write_text("import pathlib\npathlib.Path('created').touch()\n")
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    job = subprocess.run(job_command(tmp_path / "nowhere", 1), env=environment, capture_output=True, text=True)
    assert "does not exist; plan the run again" in job.stderr
    assert not (tmp_path / "created").exists()


def folders(tmp_path: Path) -> list[Path]:
    return [tmp_path / "runs" / "digits_mini" / "10lpc" / "supervised" / "pen" / f"seed{seed}" for seed in (1, 2)]


def states(tmp_path: Path) -> set[State]:
    return {read_status(folder).state for folder in folders(tmp_path)}


def ctrl_c(sweep: subprocess.Popen[str]) -> str:
    os.killpg(sweep.pid, signal.SIGINT)
    _, errors = sweep.communicate(timeout=60)
    assert "Traceback" not in errors
    return errors


def test_ctrl_c_stops_a_sweep_during_imports_and_runs(tmp_path: Path) -> None:
    sweep = start(tmp_path, steps=10_000)
    wait_for((tmp_path / "importing").exists)
    ctrl_c(sweep)
    assert sweep.returncode == -signal.SIGINT
    assert states(tmp_path) == {State.PENDING}

    sweep = start(tmp_path, steps=10_000)
    wait_for(lambda: all((folder / "steps.txt").exists() for folder in folders(tmp_path)))
    assert "0 of 2 runs are done; re-run the same command to continue" in ctrl_c(sweep)
    assert sweep.returncode == 130
    assert states(tmp_path) == {State.STOPPED}
    for folder in folders(tmp_path):
        assert "stopped and saved" in (folder / "console.txt").read_text()


def test_forked_jobs_continue_when_the_sweep_is_killed(tmp_path: Path) -> None:
    sweep = start(tmp_path, steps=100)
    wait_for(lambda: all((folder / "steps.txt").exists() for folder in folders(tmp_path)))
    sweep.kill()
    sweep.wait()
    assert states(tmp_path) == {State.RUNNING}
    wait_for(lambda: states(tmp_path) == {State.DONE})
    assert [len((folder / "starts.txt").read_text().splitlines()) for folder in folders(tmp_path)] == [1, 1]
