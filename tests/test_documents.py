"""Untrusted JSON and YAML: size, depth and expansion are limited, and every error names the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from semilearn_ext import documents
from semilearn_ext.errors import UserError
from semilearn_ext.settings.load import MAX_FILES, read_record, read_yaml

BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 12))
YAML = {
    "brackets": ("a: " + "[" * 100_000, "nested more than 20 levels"),
    "braces": ("{a: " * 5_000, "nested more than 20 levels"),
    "dashes": ("- " * 100_000 + "x", "nested more than 20 levels"),
    "aliases": (BOMB, "aliases included"),
    "an alias of itself": ("a: &a [*a]", "aliases included"),
    "a key twice": ("lr: 1\nseed: 2\nlr: 3\n", "the key 'lr' is given twice"),
    "a nested key twice": ("methods: {x: {lr: 1, lr: 2}}", "the key 'lr' is given twice"),
    "an impossible date": ("variant: 2024-99-99", "a value cannot be read"),
    "a forced type": ("seed: !!int many", "'many' in line 1 is not a decimal number"),
    "a forced truth value": ("seed: !!bool x", "a value cannot be read"),
    "a forced date": ("seed: !!timestamp x", "a value cannot be read"),
    "an object": ("seed: !!python/object/apply:os.system ['touch created']", "could not determine a constructor"),
    "control characters": ("variant: \x1b[31m", "not valid YAML"),
    "an octal number": ("seed: 017", "'017' in line 1 is not a decimal number"),
    "a number to the base of sixty": ("lr: 1\nepoch: 1:30", "'1:30' in line 2 is not a decimal number"),
    "a hexadecimal number": ("seed: 0x1F", "not a decimal number"),
    "a number with underscores": ("lr: 1_0.5", "not a decimal number"),
    "two documents": ("a: 1\n---\na: 2\n", "not valid YAML"),
}


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    text, words = YAML[name]
    path = tmp_path / "a.yaml"
    path.write_text(text)
    for read in (read_yaml, read_record):
        with pytest.raises(UserError, match=words) as error:
            read(path)
        assert str(error.value).startswith(f"{path}: ")
        assert len(str(error.value)) < 500


def test_ordinary_anchors_and_merges_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("common: &c {lr: 0.1, seed: 3}\nown: {<<: *c, lr: 0.2}\nlist: [*c, *c]\n")
    assert documents.read_yaml(path)["own"] == {"lr": 0.2, "seed": 3}


def test_decimal_numbers_are_read_as_before() -> None:
    text = "[0, -3, +5, 1.5, -0.5, 2., 1.0e-05, 1.5e+3, .inf, '010', 1e-3]"
    assert documents.parse_yaml(text, "x") == [0, -3, 5, 1.5, -0.5, 2, 1e-5, 1500, float("inf"), "010", "1e-3"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"a": ' + "9" * 400 + "}", "a number of 400 digits"),
        ("9" * 10_000, "not valid JSON"),
        ("{", "not valid JSON"),
        ("\ufeff{}", "not valid JSON"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "the name 'b' is given twice"),
    ],
)
def test_json_that_is_refused_in_one_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        documents.read_json(path)
    assert str(error.value).startswith(f"{path}: ")


def test_a_name_given_twice_is_found_among_very_many() -> None:
    names = "".join(f'"k{k}": 1, ' for k in range(200_000))
    with pytest.raises(UserError, match="the name 'z' is given twice"):
        documents.parse_json(f'{{{names} "z": 1, "z": 2}}', "x")
    keys = "".join(f"k{k}: 1\n" for k in range(40_000))
    with pytest.raises(UserError, match="the key 'z' is given twice"):
        documents.parse_yaml(f"{keys}z: 1\nz: 2\n", "x")


def test_pipes_devices_links_and_huge_files_are_not_read(tmp_path: Path) -> None:
    fifo, zero, dangling, giant = (tmp_path / name for name in ("fifo", "zero", "dangling", "giant"))
    os.mkfifo(fifo)
    zero.symlink_to("/dev/zero")
    dangling.symlink_to("nowhere")
    with giant.open("wb") as file:
        file.truncate(10**12)
    for path, words in (
        (fifo, "not a regular file"),
        (zero, "not a regular file"),
        (dangling, "no such file"),
        (giant, "larger than 16 MB"),
        (tmp_path, "not a regular file|Is a directory"),
    ):
        with pytest.raises(UserError, match=words):
            documents.read_bytes(path)
    for path in (zero, dangling):
        with pytest.raises(UserError, match="it is a symbolic link"):
            documents.read_bytes(path, follow=False)


def test_configs_that_include_too_many_files_are_refused(tmp_path: Path) -> None:
    for k in range(1, 8):
        (tmp_path / f"{k}.yaml").write_text("base: [" + ", ".join([f"{k - 1}.yaml"] * 9) + "]\n")
    (tmp_path / "0.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match=f"7.yaml: base: includes more than {MAX_FILES} files"):
        read_yaml(tmp_path / "7.yaml")


def test_the_record_of_a_run_includes_nothing(tmp_path: Path) -> None:
    (tmp_path / "secret.yaml").write_text("password: x\n")
    record = tmp_path / "config.yaml"
    record.write_text(f"base: {tmp_path / 'secret.yaml'}\n")
    with pytest.raises(UserError, match="base: not the config of a run"):
        read_record(record)
    record.unlink()
    record.symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(UserError, match="it is a symbolic link"):
        read_record(record)


def test_a_large_limit_needs_no_memory(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"x" * 3_000_000)
    assert len(documents.read_bytes(tmp_path / "weights", 2**60)) == 3_000_000
    assert documents.read_bytes(Path("/proc/self/stat"), 2**60)
