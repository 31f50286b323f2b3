"""``python -m semilearn_ext <command>``: the tools around train.py."""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

from semilearn_ext import __version__
from semilearn_ext.commands import analyse, bench, data, job, predict, sweep, tables
from semilearn_ext.commands import list as list_
from semilearn_ext.errors import exit_code_of
from semilearn_ext.settings.command_line import Parser

COMMANDS: dict[str, ModuleType] = {
    "list": list_,
    "data": data,
    "sweep": sweep,
    "job": job,
    "tables": tables,
    "analyse": analyse,
    "predict": predict,
    "bench": bench,
}


def parser() -> argparse.ArgumentParser:
    top = Parser(prog="python -m semilearn_ext", description="Tools around train.py.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, module in COMMANDS.items():
        module.add(commands.add_parser(name, help=module.HELP, description=module.__doc__))
    return top


def main() -> None:
    arguments = parser().parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
