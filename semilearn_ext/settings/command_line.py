"""Command lines: one-line mistakes with the nearest right name, and every setting a flag, in groups.

``train.py`` takes the settings alone; commands that start runs add them to flags of their own.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.settings.load import COMMAND_LINE, load_settings
from semilearn_ext.settings.methods import CHOICES, all_options, owners_of
from semilearn_ext.settings.schema import GROUPS, KEYS, TYPES, Settings

_DESCRIPTION = """\
Train one semi-supervised method on a leave-one-domain-out benchmark, through USB's own training loop.

  python train.py --c config/ssdg/fixmatch_digits_mini.yaml                 one run a target, then a table
  python train.py --c FILE --target_domain pen --seed 3                     one run
  python train.py --c FILE --dry_run                                        what would be done
  torchrun --nproc_per_node 2 train.py --c FILE                             several processes

A setting comes from the command line, else from the YAML file, else from the default shown here.
The same command goes on where an interrupted run stopped; a finished run is not run again."""


class Parser(argparse.ArgumentParser):
    """argparse, with mistakes as UserErrors and no abbreviations. Its sub-parsers are of the same kind.

    When ``--extend`` names files, flags that nobody knows yet may be options of theirs: they are taken as they are,
    and checked when the files have been read.
    """

    def __init__(self, **about: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **about})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = list(sys.argv[1:] if args is None else args)
        words, unknown = self._part(words) if self._subparsers is None else (words, [])
        extended = any(word.split("=")[0] == "--extend" for word in words)
        if unknown and not extended:
            raise UserError(self._unknown(unknown[0]))
        parsed, left_over = super().parse_known_args(words, namespace)
        if left_over:
            raise UserError(self._unknown(left_over[0]))
        for name, value in _as_given(unknown).items():
            setattr(parsed, name, value)
        return parsed, []

    def _part(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words that belong to flags of this parser or to none, and those that belong to flags it does not know."""
        parted: tuple[list[str], list[str]] = ([], [])
        unknown = False
        for word in words:
            if word.startswith("--"):
                unknown = word.split("=")[0] not in self._option_string_actions
            parted[unknown].append(word)
        return parted

    def _unknown(self, word: str) -> str:
        if not word.startswith("-"):
            return f"{COMMAND_LINE}: {word!r} stands alone; flags are written --key value"
        known = [flag.lstrip("-") for flag in self._option_string_actions]
        hint = did_you_mean(word.lstrip("-").split("=")[0], known)
        return f"{COMMAND_LINE}: {word}: no such setting{hint} (all of them: {self.prog} --help)"

    def error(self, message: str) -> Any:
        raise UserError(f"{COMMAND_LINE}: {message}")


def _as_given(words: Sequence[str]) -> dict[str, str]:
    """``--key value`` and ``--key=value``, as they stand."""
    given: dict[str, str] = {}
    rest = list(words)
    while rest:
        name, equals, value = rest.pop(0).removeprefix("--").partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        given[name] = value
    return given


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="train.py",
        usage="train.py --c FILE [--key value ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--c", metavar="FILE", type=Path, help="the YAML file to start from")
    add_settings(parser)
    return parser


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Every setting and option as a flag, in groups. Values stay as they were written; one not given is left out."""
    groups = {name: parser.add_argument_group(f"{name}: {title}") for name, title in GROUPS.items()}
    for name, entry in KEYS.items():
        about = entry.metadata
        _add_flag(
            groups[about["group"]],
            name,
            TYPES[name],
            f"{about['help']} [{_shown(entry.default)}]",
            about["choices"],
        )
    options = parser.add_argument_group("options: what each algorithm and plug-in adds")
    owned = all_options()
    for name in _option_names():
        owners = owners_of(name)
        first = owned[owners[0]][name]
        defaults = {_shown(owned[owner][name].default) for owner in owners}
        shown = defaults.pop() if len(defaults) == 1 else "by method"
        _add_flag(
            options, name, type(first.default), f"{first.help} [{shown}] ({', '.join(owners)})", CHOICES.get(name, ())
        )


def _option_names() -> list[str]:
    return sorted({name for options in all_options().values() for name in options})


def _add_flag(group: Any, name: str, kind: Any, help: str, choices: Sequence[str]) -> None:
    if kind is bool:
        about = {"nargs": "?", "const": "true", "metavar": "BOOL"}
        group.add_argument(f"--{name}", default=argparse.SUPPRESS, help=help.replace("%", "%%"), **about)
        return
    words = {int: "N", float: "X", float | None: "X", str: "NAME", tuple[str, ...]: "A,B"}
    metavar = "{" + ",".join(choices) + "}" if choices else words[kind]
    group.add_argument(f"--{name}", default=argparse.SUPPRESS, metavar=metavar, help=help.replace("%", "%%"))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value in (None, "", ()) else str(value)


def parse(argv: Sequence[str]) -> Settings:
    """The command line's settings. ``--help`` prints and exits; a mistake is a UserError."""
    overrides = vars(build_parser().parse_args(argv))
    return load_settings(overrides.pop("c", None), overrides)
