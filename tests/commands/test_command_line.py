"""``ssdg`` itself: the list of commands, help and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from semilearn_ext import __version__
from semilearn_ext.__main__ import COMMANDS, console
from semilearn_ext.registry import ALGORITHMS, PLUGINS, declared_options
from semilearn_ext.settings.command_line import Parser, add_settings
from semilearn_ext.settings.schema import KEYS

HEAVY = {"torch", "semilearn", "pandas", "numpy", "matplotlib", "submitit", "tqdm"}


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_every_command_is_listed_with_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        sys.exit(console(arguments))
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    for name, module in COMMANDS.items():
        assert [name, module.HELP] in lines


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usage_of_every_command_starts_with_ssdg(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        console([name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: ssdg {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_is_plain_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        console([name, "--help"])
    output = capsys.readouterr().out
    assert "``" not in output
    assert "[none]" not in output


def test_every_setting_and_option_states_its_default() -> None:
    parser = Parser()
    add_settings(parser)
    helps = {action.dest: action.help or "" for action in parser._actions if action.dest != "help"}
    options = {option for spec in (*ALGORITHMS, *PLUGINS) for option in spec.options}
    assert set(helps) == {*KEYS, *options}
    meanings = {name: {option.help for option in entries} for name, entries in declared_options().items()}
    assert {name: text.count("(default: ") for name, text in helps.items()} == {
        name: len(meanings.get(name, [name])) for name in helps
    }
    assert helps["seed"].endswith("(default: 1)")
    assert helps["source_domains"].endswith("(default: all except the target)")
    assert helps["fbc_weight"].endswith("(default: 0.1 for fbcsa)")
    assert helps["ent_loss_ratio"] == (
        "weight of the fairness loss (default: 0.01 for freematch); weight of the entropy loss (default: 0.06 for vat)"
    )
    assert "fixmatch, flexmatch, pseudolabel, simmatch, stylematch; 0.8 for uda)" in helps["p_cutoff"]


def test_help_does_not_import_heavy_packages() -> None:
    code = f"import sys\nfrom semilearn_ext.__main__ import main\nmain([])\nprint({HEAVY} & set(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["trian"], "'trian' is not a command; did you mean 'train'? (list all: ssdg --help)"),
        (["train", "--sede", "1"], "--sede: no such setting; did you mean 'seed'? (list all: ssdg train --help)"),
    ],
)
def test_an_unknown_command_or_option_is_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console(arguments) == 2
    errors = capsys.readouterr().err
    assert expected in errors
    assert errors.count("\n") == 1


def test_the_module_prints_the_version() -> None:
    command = [sys.executable, "-m", "semilearn_ext", "--version"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{__version__}\n"


def test_extensions_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from semilearn_ext.extend import NetSpec, register\n"
        "@register(NetSpec(name='tiny_listed', title='Tiny', about='a network for this test', paper=''))\n"
        "def build(settings): ...\n"
    )
    assert console(["list", "--extend", str(file)]) == 0
    assert "tiny_listed            a network for this test" in capsys.readouterr().out
    file.write_text("raise ValueError('broken')\n")
    assert console(["list", "--extend", str(file)]) == 2
    assert capsys.readouterr().err == f"error: --extend: {file}:1: ValueError: broken\n"
