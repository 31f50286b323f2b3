"""Command lines: every setting is a flag, and the error for an unknown one suggests the nearest known name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from semilearn_ext import registry
from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.names import COMMAND_WORDS
from semilearn_ext.settings.convert import as_text, convert
from semilearn_ext.settings.extensions import load_extension
from semilearn_ext.settings.load import COMMAND_LINE
from semilearn_ext.settings.schema import GROUPS, KEYS, TYPES
from semilearn_ext.specs import Option


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UserErrors and does not accept abbreviations. Its sub-parsers do the same.

    With ``--extend``, unknown flags may be options that the extensions declare. They are kept as strings and checked
    once the files have been loaded.
    """

    def __init__(self, **about: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **about})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        words, unknown = self._separate(words) if self._subparsers is None else (words, [])
        extended = any(word.split("=")[0] == "--extend" for word in words)
        if unknown and not extended:
            raise UserError(self._unknown(unknown[0]))
        parsed, left_over = super().parse_known_args(words, namespace)
        if left_over:
            raise UserError(self._unknown(left_over[0]))
        for name, value in _as_given(unknown).items():
            if name in COMMAND_WORDS:  # belongs to another command, or is an attribute that argparse sets itself
                raise UserError(self._unknown(f"--{name}"))
            setattr(parsed, name, value)
        return parsed, []

    def _separate(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """Separate known flags and positional arguments from unknown flags, each with their values."""
        groups: tuple[list[str], list[str]] = ([], [])
        unknown = False
        for word in words:
            if word.startswith("--"):
                unknown = word.split("=")[0] not in self._option_string_actions
            groups[unknown].append(word)
        return groups

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{COMMAND_LINE}: unexpected argument {word!r}; options are written as --key value"
        known = [flag.lstrip("-") for flag in self._option_string_actions]
        hint = did_you_mean(word.lstrip("-").split("=")[0], known)
        return f"{COMMAND_LINE}: {word}: no such setting{hint} (list all: {self.prog} --help)"

    def error(self, message: str) -> Any:
        raise UserError(f"{COMMAND_LINE}: {message}")


def _as_given(words: Sequence[str]) -> dict[str, str]:
    """Parse ``--key value`` and ``--key=value`` into a mapping of strings."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        given[name] = value
    return given


def load_extensions_in(words: Sequence[str]) -> None:
    """Load the extensions that a command line names, before it is parsed."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        flag, _, value = word.partition("=")
        if flag == "--extend":
            where = f"{COMMAND_LINE}: {flag}"
            for file in convert(value or following, TYPES["extend"], where):
                load_extension(file, where)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add every setting and option as a flag, in groups. Values remain strings; missing flags are omitted."""
    groups = {name: parser.add_argument_group(name, title) for name, title in GROUPS.items()}
    for name, entry in KEYS.items():
        about = entry.metadata
        states_default = "(default: " in about["help"]
        text = about["help"] if states_default else f"{about['help']} (default: {as_text(entry.default)})"
        _add_flag(groups[about["group"]], name, TYPES[name], text, about["choices"])
    options = parser.add_argument_group("options of algorithms and plug-ins")
    for name, declarations in registry.declared_options().items():
        option = next(iter(declarations))
        _add_flag(options, name, option.type, _option_help(declarations), option.choices)


def _option_help(declarations: Mapping[Option, Sequence[str]]) -> str:
    """The meaning of an option and its default for every method that has it."""
    defaults: dict[str, list[str]] = {}
    for option, owners in declarations.items():
        defaults.setdefault(option.help, []).append(f"{as_text(option.default)} for {', '.join(owners)}")
    return "; ".join(f"{meaning} (default: {'; '.join(values)})" for meaning, values in defaults.items())


def _add_flag(group: Any, name: str, kind: Any, help: str, choices: Sequence[str]) -> None:
    if kind is bool:
        about = {"nargs": "?", "const": "true", "metavar": "BOOL"}
        group.add_argument(f"--{name}", default=argparse.SUPPRESS, help=help.replace("%", "%%"), **about)
        return
    words = {int: "N", float: "X", float | None: "X", str: "NAME", tuple[str, ...]: "A,B"}
    paths = {"_dir": "DIR", "_file": "FILE", "_path": "FILE"}
    word = next((word for ending, word in paths.items() if name.endswith(ending)), words[kind])
    metavar = "{" + ",".join(choices) + "}" if choices else word
    group.add_argument(f"--{name}", default=argparse.SUPPRESS, metavar=metavar, help=help.replace("%", "%%"))
