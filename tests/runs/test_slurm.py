"""Sweeps on a real SLURM, started by the tests on this machine: an array runs, and stopped jobs resume."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from semilearn_ext.runs.slurm import Request, minutes
from tests.conftest import ROOT
from tests.forked import wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scontrol", "scancel")
PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
CONFIG = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ctld_port}
SlurmdPort={d_port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/d.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=15
SchedulerParameters=sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1
PartitionName=urgent Nodes=ALL PriorityTier=2
"""


def why_not() -> str:
    if os.geteuid() != 0:
        return "SLURM's daemons are started as root"
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    try:
        import submitit  # noqa: F401
    except ImportError:
        return "not installed: submitit"
    return ""


def free_port() -> int:
    with socket.socket() as any_port:
        any_port.bind(("", 0))
        return int(any_port.getsockname()[1])


@contextmanager
def daemon(command: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A controller, a node and munge in a temporary folder; they are stopped at the end."""
    if why_not():
        pytest.skip(why_not())
    folder = tmp_path_factory.mktemp("slurm")
    for name in ("state", "spool"):
        (folder / name).mkdir()
    host = socket.gethostname().split(".")[0]
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, ctld_port=free_port(), d_port=free_port()))
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    munge = ["munged", "--foreground", "--force", f"--socket={folder}/munge.sock", f"--key-file={folder}/munge.key"]
    munge += [f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munge.seed"]
    with ExitStack() as stack, pytest.MonkeyPatch.context() as environment:
        environment.setenv("SLURM_CONF", str(config))
        environment.setenv("PATH", PATH)
        stack.enter_context(daemon(munge, folder / "munge.out"))
        wait_for((folder / "munge.sock").exists)
        stack.enter_context(daemon(["slurmctld", "-D"], folder / "ctld.out"))
        stack.enter_context(daemon(["slurmd", "-D"], folder / "d.out"))
        wait_for(lambda: output_of("sinfo", "--noheader", "--format=%t") == "idle", interval=0.5)
        yield folder
        subprocess.run(["scancel", "--user=root"], check=True)
        wait_for(lambda: not output_of("squeue", "--noheader"), interval=0.5)


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout.strip()


def sweep(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "semilearn_ext", "sweep", *arguments]
    process = subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_an_array_runs_and_jobs_stopped_by_slurm_resume(slurm: Path, tmp_path: Path, cache_dir: Path) -> None:
    flags = (
        *("--launcher", "slurm", "--time", "10", "--partition", "main", "--save_dir", "runs", "--device", "cpu"),
        *("--algorithms", "supervised", "--targets", "pen,print", "--batch_size", "6", "--labels_per_class", "5"),
        *("--num_train_iter", "600", "--num_eval_iter", "600", "--checkpoint_every", "10"),
        *("--cache_dir", str(cache_dir), "--flip", "false"),
    )
    assert "Queued 2 runs as SLURM job " in sweep(*flags, cwd=tmp_path)
    assert "Already queued or running: 2 runs" in sweep(*flags, cwd=tmp_path)
    folders = [tmp_path / "runs" / "digits_mini" / "5lpc" / "supervised" / t / "seed1" for t in ("pen", "print")]
    array = output_of("squeue", "--noheader", "--format=%F").split()[0]

    wait_for(lambda: all(list(folder.glob("checkpoint_*")) for folder in folders))
    # The signal that SLURM sends near the time limit, and a job that preempts the other one.
    subprocess.run(["scancel", "--signal=USR2", f"{array}_0"], check=True)
    subprocess.run(["sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=true"], check=True)

    wait_for(lambda: all((folder / "result.json").exists() for folder in folders))
    for folder in folders:
        assert "stopped after iteration" in (folder / "console.txt").read_text()
        assert "resuming after iteration" in (folder / "log.txt").read_text()
    wait_for(lambda: not output_of("squeue", "--noheader"), interval=0.5)
    assert sweep("status", "runs", cwd=tmp_path).strip() == "2 runs: 2 done"


def test_a_rejection_by_slurm_is_one_line(slurm: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "semilearn_ext", "sweep", "--launcher", "slurm", "--time", "5"]
    command += ["--partition", "nowhere", "--targets", "pen", "--save_dir", str(tmp_path / "runs")]
    process = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert process.returncode == 2
    assert "error: SLURM rejected the jobs: " in process.stderr
    assert "invalid partition" in process.stderr
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("1:30", 2), ("4:00:00", 240), ("2-12", 3600), ("1-02:03", 1563), ("0-00:00:01", 1)],
)
def test_time_formats_of_slurm(text: str, expected: int) -> None:
    assert minutes(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "0", "1:2:3:4", "-5", "4h"])
def test_invalid_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        minutes(text)


def test_a_request_contains_only_what_is_set() -> None:
    parameters = Request(minutes=60, partition="gpu", sbatch={"account": "me"}).parameters()
    assert parameters["slurm_partition"] == "gpu"
    assert parameters["slurm_additional_parameters"] == {"requeue": True, "account": "me"}
    assert "gpus_per_node" not in parameters
