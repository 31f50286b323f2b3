"""The command ``ssdg``, also available as ``python -m semilearn_ext``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from semilearn_ext import __version__
from semilearn_ext.commands import (
    analyse,
    bench,
    claims,
    data,
    doctor,
    job,
    predict,
    records,
    reproduce,
    select,
    sweep,
    tables,
    train,
)
from semilearn_ext.commands import list as list_
from semilearn_ext.errors import UserError, did_you_mean, exit_code_of, show_warnings_on_one_line
from semilearn_ext.settings.command_line import Parser, load_extensions_in

COMMANDS: dict[str, ModuleType] = {
    "train": train,
    "sweep": sweep,
    "select": select,
    "reproduce": reproduce,
    "records": records,
    "tables": tables,
    "claims": claims,
    "analyse": analyse,
    "predict": predict,
    "data": data,
    "list": list_,
    "bench": bench,
    "doctor": doctor,
    "job": job,
}


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="ssdg",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, indent_increment=1),
        usage="ssdg COMMAND [options]",
        description="Semi-supervised domain generalization with USB. 'ssdg COMMAND --help' explains a command.",
    )
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", title="commands", metavar="COMMAND", prog="ssdg")
    for name, module in COMMANDS.items():
        module.add(commands.add_parser(name, help=module.HELP, description=module.__doc__))
    return top


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command, or list the commands if none is given. :func:`console` turns errors into exit codes."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words:
        parser().print_help()
        return
    if words[0] not in COMMANDS and not words[0].startswith("-"):
        raise UserError(f"{words[0]!r} is not a command{did_you_mean(words[0], COMMANDS)} (list all: ssdg --help)")
    for word in words:
        if word.startswith("-") and word.endswith("=--"):  # argparse would make an empty list of it
            raise UserError(f"{word.removesuffix('=--')}: '--' is not a value")
    if "--help" in words or "-h" in words:
        load_extensions_in(words)  # the help includes their options
    arguments = parser().parse_args(words)
    arguments.call(arguments)


def console(argv: Sequence[str] | None = None) -> int:
    """The console script ``ssdg``: run a command and return its exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):  # file names may not be valid text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    show_warnings_on_one_line()
    os.environ["MPLBACKEND"] = "Agg"  # figures are only written to files
    return exit_code_of(lambda: main(argv))


def _open_closed_streams() -> None:
    """Replace streams that the caller has closed (``>&-``): the first file to be opened would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - until the process ends


if __name__ == "__main__":
    sys.exit(console())
