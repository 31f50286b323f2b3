"""Collect finished runs in small files, from which tables, statistics, curves and the web page can be rebuilt.

ssdg records runs --out results/records                     add all finished runs to the existing records
ssdg records laptop/records --out results/records           add the records of another machine
ssdg tables results/records --out results                   rebuild everything from the records
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext.errors import UserError, counted, printable

HELP = "collect finished runs in small files, to commit or to merge"


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders that contain runs or records")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/records"),
        metavar="DIR",
        help="folder of the records, which is created or extended (default: results/records)",
    )
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.report.collect import collect

    try:
        collected = collect(arguments.runs, arguments.out)
    except OSError as error:
        raise UserError(f"--out: {arguments.out}: cannot be written: {error.strerror}") from None
    for warning in collected.warnings:
        print(printable(f"warning: {warning}"), file=sys.stderr)
    if collected.added + collected.known == 0:
        where = ", ".join(map(str, arguments.runs))
        raise UserError(f"{where}: no finished runs ({collected.unfinished} unfinished)")
    skipped = f"; unfinished runs skipped: {collected.unfinished}" if collected.unfinished else ""
    print(f"Added {counted(collected.added, 'run')} to {arguments.out}; already included: {collected.known}{skipped}")
