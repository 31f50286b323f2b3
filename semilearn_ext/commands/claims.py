"""Report, for every claim of the paper, its numbers, what was run here and what remains to be run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext import files
from semilearn_ext.errors import UserError, printable

HELP = "report what was run for every claim of the paper"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUNS", help="folders that contain runs or records")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results/reproduction.md"),
        metavar="FILE",
        help="file to write (default: results/reproduction.md)",
    )
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file does not match the runs")
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.commands.tables import command_line
    from semilearn_ext.report import claims, paper_numbers, paper_runs
    from semilearn_ext.report.build import build
    from semilearn_ext.report.check import check_files
    from semilearn_ext.report.methods import MethodId

    report = build(arguments.runs, (), (), "last") if arguments.runs else None
    for remark in report.remarks() if report else []:
        print(printable(remark), file=sys.stderr)
    hours: dict[tuple[str, int, MethodId], float] = {}
    for dataset in paper_numbers.dataset_order():
        hours |= paper_runs.paper_hours(dataset)
    text = claims.render(
        report.results if report else None, hours, command_line(), [root.parent for root in arguments.runs]
    )
    if arguments.check:
        check_files({arguments.out: text})
        print(f"{arguments.out} matches the runs")
        return
    try:
        files.write_text(arguments.out, text)
    except OSError as error:
        raise UserError(f"--out: {arguments.out}: cannot be written: {error.strerror}") from None
    print(f"Wrote {arguments.out}")
