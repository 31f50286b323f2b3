"""Nothing is written through links, and errors name the file that cannot be written."""

from __future__ import annotations

import os
import resource
import socket
import stat
from pathlib import Path

import pytest

from semilearn_ext import files
from semilearn_ext.errors import UserError


def test_a_planted_temporary_file_or_link_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder = tmp_path / "run"
    folder.mkdir()
    for name in (f".a.json.{os.getpid()}.tmp", "a.json", "log.txt"):
        (folder / name).symlink_to(victim)
    files.write_json(folder / "a.json", {"x": 1})
    with pytest.raises(UserError, match=r"log\.txt: is a symbolic link, pipe or device"):
        files.open_to_append(folder / "log.txt")
    assert victim.read_text() == "mine"
    assert not (folder / "a.json").is_symlink()


def test_opening_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a symbolic link, pipe or device"):
        files.open_to_append(tmp_path / "pipe")


def test_a_file_that_cannot_be_written_is_named_and_leaves_no_files(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "file" / "x.txt", tmp_path / "folder"):
        with pytest.raises(OSError, match=r"directory|exists") as error:
            files.write_text(path, "text")
        assert error.value.filename == str(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="too large") as error:
            files.write_text(tmp_path / "big.txt", "x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.value.filename == str(tmp_path / "big.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_invalid_unicode_is_written_unchanged(tmp_path: Path) -> None:
    files.write_text(tmp_path / "list.txt", os.fsdecode(b"caf\xe9.jpg"))
    assert (tmp_path / "list.txt").read_bytes() == b"caf\xe9.jpg"


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_pipe_or_device_is_not_replaced_by_a_file(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "special"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        try:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        except OSError as error:
            pytest.skip(f"no device can be made here: {error.strerror}")
    before = os.lstat(path)
    with pytest.raises(UserError, match="is a pipe, socket or device, and is not written to"):
        files.write_text(path, "text")
    assert os.path.samestat(os.lstat(path), before)
    assert [entry.name for entry in tmp_path.iterdir()] == ["special"]
