"""``python -m semilearn_ext <command>``: the tools around train.py."""

from __future__ import annotations

import argparse
import sys
from types import ModuleType

from semilearn_ext import __version__
from semilearn_ext.commands import bench, data
from semilearn_ext.commands import list as list_
from semilearn_ext.errors import exit_code_of

COMMANDS: dict[str, ModuleType] = {"list": list_, "data": data, "bench": bench}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m semilearn_ext", description="Tools around train.py.")
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
