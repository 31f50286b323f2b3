"""Only one process holds the lock of a folder: with concurrent processes, after crashes, and between machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.runs import lock
from semilearn_ext.runs.file_names import LOCK_FILE
from semilearn_ext.runs.lock import Held, holder_of
from tests.forked import wait_for

HOLDING = """
import sys
from pathlib import Path
from semilearn_ext.runs import lock
lock.HEARTBEAT = 0.05
with lock.lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
# In each round a new process locks the folder and dies with the lock, so that the next one has to take it over.
# The check of a lock is slowed down, so that the test fails if checking and taking a lock are not atomic.
RACING = """
import os, sys, time
from pathlib import Path
from semilearn_ext.runs import lock
folder, inside = Path(sys.argv[1]), Path(sys.argv[2])
is_alive = lock._is_alive
def slowly(*arguments):
    verdict = is_alive(*arguments)
    time.sleep(0.003)
    return verdict
lock._is_alive = slowly
won, clashes = 0, 0
for _ in range(25):
    child = os.fork()
    if child == 0:
        try:
            with lock.lock(folder):
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                time.sleep(0.003)
                inside.unlink()
                os._exit(10)
        except lock.Held:
            os._exit(20)
        except FileExistsError:
            os._exit(30)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    won += code == 10
    clashes += code not in (10, 20)
print(won, clashes)
"""


def start_holding(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HOLDING, str(folder)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_locked_folder_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    with pytest.raises(Held, match=f"is being trained by process {other.pid} on "), lock.lock(tmp_path):
        pytest.fail("locked twice")
    holder = holder_of(tmp_path)
    assert holder is not None
    assert holder.pid == other.pid
    other.communicate("")
    assert holder_of(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with lock.lock(tmp_path):
        assert holder_of(tmp_path).is_this_process  # type: ignore[union-attr]


def test_the_lock_of_a_killed_process_is_stale(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert holder_of(tmp_path) is None, "the process has ended, although its exit code has not been read yet"
    other.communicate()
    assert (tmp_path / LOCK_FILE).exists()
    with lock.lock(tmp_path):
        assert holder_of(tmp_path).pid == os.getpid()  # type: ignore[union-attr]
    assert list(tmp_path.iterdir()) == []


def test_a_process_may_lock_a_folder_twice(tmp_path: Path) -> None:
    with lock.lock(tmp_path):
        with lock.lock(tmp_path):
            pass
        assert holder_of(tmp_path) is not None
    assert holder_of(tmp_path) is None


def test_only_one_of_many_processes_takes_over_a_stale_lock(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", RACING, str(folder), str(tmp_path / "inside")]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    counts = [tuple(map(int, racer.communicate()[0].split())) for racer in racers]
    assert sum(clashes for _, clashes in counts) == 0
    assert sum(won for won, _ in counts) >= 4
    assert holder_of(folder) is None


def on_another_machine(folder: Path, silent_for: float) -> None:
    path = folder / LOCK_FILE
    away = {"host": "away", "machine": "away 1", "pid": os.getpid(), "started": "1", "token": "t"}
    path.write_text(json.dumps(away))
    os.utime(path, (time.time() - silent_for,) * 2)


def test_a_lock_of_another_machine_is_judged_by_its_heartbeat(tmp_path: Path) -> None:
    on_another_machine(tmp_path, silent_for=lock.SILENCE / 2)
    with pytest.raises(Held, match="on away"), lock.lock(tmp_path):
        pass
    on_another_machine(tmp_path, silent_for=lock.SILENCE * 2)
    with lock.lock(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_reused_process_id_is_not_the_holder(tmp_path: Path) -> None:
    with lock.lock(tmp_path):
        content = json.loads((tmp_path / LOCK_FILE).read_text())
    (tmp_path / LOCK_FILE).write_text(json.dumps({**content, "started": "long ago"}))
    assert holder_of(tmp_path) is None


def test_an_empty_lock_is_respected_until_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / LOCK_FILE
    path.touch()
    with pytest.raises(Held, match="another process"), lock.lock(tmp_path):
        pass
    os.utime(path, (0, 0))
    with lock.lock(tmp_path):
        pass


def test_the_lock_is_touched_regularly(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    os.utime(tmp_path / LOCK_FILE, (0, 0))
    wait_for(lambda: (tmp_path / LOCK_FILE).stat().st_mtime > 0)
    other.communicate("")


def test_a_suspended_process_that_lost_the_lock_exits(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    on_another_machine(tmp_path, silent_for=0)
    assert other.wait(timeout=60) == 1
    assert other.stderr is not None
    assert "taken over by process" in other.stderr.read()
    assert json.loads((tmp_path / LOCK_FILE).read_text())["host"] == "away"


def test_a_lock_that_is_a_link_or_a_pipe_is_named(tmp_path: Path) -> None:
    """A dangling link must not cause an endless loop, and a pipe must not block."""
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "lock.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "lock.json")
    for name in ("link", "pipe"):
        assert holder_of(tmp_path / name) is None
        with pytest.raises(UserError, match=r"lock\.json: cannot be .* lock"), lock.lock(tmp_path / name):
            pass
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("content", ["[" * 100_000, '{"pid": 1}', "[]", "null", '{"pid": [], "host": 1}', "\xff"])
def test_damaged_locks_without_a_heartbeat_are_taken_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "lock.json").write_text(content)
    os.utime(tmp_path / "lock.json", (0, 0))
    with lock.lock(tmp_path):
        assert holder_of(tmp_path) is not None


def test_a_lock_from_the_future_is_not_respected_forever(tmp_path: Path) -> None:
    holder = {"host": "x", "machine": "another", "pid": 1, "started": "1", "token": "1"}
    (tmp_path / "lock.json").write_text(json.dumps(holder))
    later = time.time() + 10 * 365 * 86400
    os.utime(tmp_path / "lock.json", (later, later))
    assert holder_of(tmp_path) is None
    with lock.lock(tmp_path):
        pass
