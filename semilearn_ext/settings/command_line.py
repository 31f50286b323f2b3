"""``train.py``'s command line: every setting is a flag, and ``--help`` shows them in groups."""

from __future__ import annotations

import argparse
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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UserError(f"{COMMAND_LINE}: {message}")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="train.py",
        usage="train.py --c FILE [--key value ...]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--c", metavar="FILE", type=Path, help="the YAML file to start from")
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
    return parser


def _option_names() -> list[str]:
    return sorted({name for options in all_options().values() for name in options})


def _add_flag(group: Any, name: str, kind: Any, help: str, choices: Sequence[str]) -> None:
    if kind is bool:
        group.add_argument(f"--{name}", nargs="?", const="true", metavar="BOOL", help=help.replace("%", "%%"))
        return
    words = {int: "N", float: "X", float | None: "X", str: "NAME", tuple[str, ...]: "A,B"}
    metavar = "{" + ",".join(choices) + "}" if choices else words[kind]
    group.add_argument(f"--{name}", metavar=metavar, help=help.replace("%", "%%"))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value in (None, "", ()) else str(value)


def parse(argv: Sequence[str]) -> Settings:
    """The command line's settings. ``--help`` prints and exits; a mistake is a UserError."""
    parsed, unknown = build_parser().parse_known_args(argv)
    if unknown:
        raise UserError(_unknown_flag(unknown[0]))
    overrides = vars(parsed)
    return load_settings(overrides.pop("c", None), overrides)


def _unknown_flag(word: str) -> str:
    if not word.startswith("-"):
        return f"{COMMAND_LINE}: {word!r} stands alone; flags are written --key value"
    name = word.lstrip("-").split("=")[0]
    known = [*KEYS, *_option_names(), "c"]
    return f"{COMMAND_LINE}: {word}: no such setting{did_you_mean(name, known)} (all of them: train.py --help)"
