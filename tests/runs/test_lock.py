"""One process holds a folder: raced for by real processes, taken over from dead ones, kept from living ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.runs import lock
from semilearn_ext.runs.lock import Held, hold, holder_of

HOLDING = """
import sys
from pathlib import Path
from semilearn_ext.runs import lock
lock.HEARTBEAT = 0.05
with lock.hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""
# Each round a process of its own takes the folder and dies holding it, so that the next one has to take it over.
# Judging a lock is slowed down: whoever does not look and take in one go is overtaken.
RACING = """
import os, sys, time
from pathlib import Path
from semilearn_ext.runs import lock
folder, inside = Path(sys.argv[1]), Path(sys.argv[2])
judge = lock._is_alive
def slowly(*what):
    verdict = judge(*what)
    time.sleep(0.003)
    return verdict
lock._is_alive = slowly
won, clashes = 0, 0
for _ in range(25):
    child = os.fork()
    if child == 0:
        try:
            with lock.hold(folder):
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


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_held_folder_is_refused_and_its_holder_named(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    with pytest.raises(Held, match=f"is being trained by process {other.pid} on "), hold(tmp_path):
        pytest.fail("held twice")
    holder = holder_of(tmp_path)
    assert holder is not None
    assert holder.pid == other.pid
    other.communicate("")
    assert holder_of(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
    with hold(tmp_path):
        assert holder_of(tmp_path).is_this_process  # type: ignore[union-attr]


def test_a_killed_holder_holds_no_longer(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    other.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert holder_of(tmp_path) is None, "dead, though nobody has asked for its exit code yet"
    other.communicate()
    assert (tmp_path / lock.NAME).exists()
    with hold(tmp_path):
        assert holder_of(tmp_path).pid == os.getpid()  # type: ignore[union-attr]
    assert list(tmp_path.iterdir()) == []


def test_a_process_may_hold_what_it_holds_already(tmp_path: Path) -> None:
    with hold(tmp_path):
        with hold(tmp_path):
            pass
        assert holder_of(tmp_path) is not None
    assert holder_of(tmp_path) is None


def test_of_many_that_take_over_a_dead_ones_lock_one_wins(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-c", RACING, str(folder), str(tmp_path / "inside")]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    counts = [tuple(map(int, racer.communicate()[0].split())) for racer in racers]
    assert sum(clashes for _, clashes in counts) == 0
    assert sum(won for won, _ in counts) >= 4
    assert holder_of(folder) is None


def on_another_machine(folder: Path, silent_for: float) -> None:
    path = folder / lock.NAME
    away = {"host": "away", "machine": "away 1", "pid": os.getpid(), "started": "1", "token": "t"}
    path.write_text(json.dumps(away))
    os.utime(path, (time.time() - silent_for,) * 2)


def test_another_machine_is_judged_by_its_heartbeat(tmp_path: Path) -> None:
    on_another_machine(tmp_path, silent_for=lock.SILENCE / 2)
    with pytest.raises(Held, match="on away"), hold(tmp_path):
        pass
    on_another_machine(tmp_path, silent_for=lock.SILENCE * 2)
    with hold(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_number_that_another_process_has_got_since_does_not_count(tmp_path: Path) -> None:
    with hold(tmp_path):
        content = json.loads((tmp_path / lock.NAME).read_text())
    (tmp_path / lock.NAME).write_text(json.dumps({**content, "started": "long ago"}))
    assert holder_of(tmp_path) is None


def test_a_lock_without_a_name_counts_until_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / lock.NAME
    path.touch()
    with pytest.raises(Held, match="another process"), hold(tmp_path):
        pass
    os.utime(path, (0, 0))
    with hold(tmp_path):
        pass


def test_the_heart_beats(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    os.utime(tmp_path / lock.NAME, (0, 0))
    wait_for(lambda: (tmp_path / lock.NAME).stat().st_mtime > 0)
    other.communicate("")


def test_who_slept_and_lost_the_folder_ends(tmp_path: Path) -> None:
    other = start_holding(tmp_path)
    on_another_machine(tmp_path, silent_for=0)
    assert other.wait(timeout=60) == 1
    assert other.stderr is not None
    assert "taken over by process" in other.stderr.read()
    assert json.loads((tmp_path / lock.NAME).read_text())["host"] == "away"
