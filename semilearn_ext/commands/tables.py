"""``tables``: from run folders to the paper's tables, statistics and a page."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semilearn_ext.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from semilearn_ext.report.build import Report

HELP = "from run folders to the paper's tables, statistics and a page"
FORMATS = ("md", "csv", "latex", "html")
SAID = 30
"""Remarks that are printed; all of them are in the files."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUNS", help="folders that hold runs")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="where to write, or one file, NAME.md [results]",
    )
    parser.add_argument(
        "--tables", metavar="A,B", help="only these: label_10, ablation, summary, … [all that have runs]"
    )
    parser.add_argument("--compare", default="", metavar="A,B", help="methods to put side by side")
    parser.add_argument("--format", metavar="A,B", help=f"[{','.join(FORMATS)}; NAME.md: md]")
    parser.add_argument(
        "--protocol",
        choices=("last", "source_val", "oracle"),
        default="last",
        help="last iteration, chosen on held-out source images, or the upper bound [last]",
    )
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.report.build import TABLES, build
    from semilearn_ext.report.writers import markdown

    names = _known(arguments.tables, TABLES, "--tables") if arguments.tables else TABLES
    formats = _formats(arguments.format, arguments.out)
    compared = [word for word in arguments.compare.split(",") if word]
    if len(compared) == 1:
        raise UserError(f"--compare: {compared[0]} alone; name two methods or more, with commas between them")
    report = build(arguments.runs, names, compared, arguments.protocol)
    if not report.tables:
        raise UserError("; ".join(report.absent))
    command = shlex.join(["python", "-m", "semilearn_ext", *sys.argv[1:]])
    try:
        written = write(report, arguments.out, formats, command)
    except OSError as error:
        raise UserError(f"--out: {arguments.out}: cannot be written: {error.strerror}") from None
    print(markdown(report.tables[0]))
    for line in _first(report.remarks()):
        print(line, file=sys.stderr)
    print(f"written: {', '.join(map(str, written))}")


def write(report: Report, out: Path, formats: Sequence[str], command: str) -> list[Path]:
    """Write the report and return what a reader opens: files, and folders of files."""
    from semilearn_ext import files
    from semilearn_ext.report import writers
    from semilearn_ext.report.page import page
    from semilearn_ext.report.tables import each_run

    written = []
    if "md" in formats:
        written.append(out if _is_markdown(out) else out / "tables.md")
        files.write_text(written[-1], writers.markdown_page(report.tables, command, report.remarks()))
    if "csv" in formats:
        written.append(out / "csv")
        for table in report.tables:
            files.write_text(out / "csv" / f"{table.name}.csv", writers.csv(table.data, command))
        files.write_text(out / "csv" / "runs.csv", writers.csv(each_run(report.results), command))
    if "latex" in formats:
        written.append(out / "latex")
        for table in report.tables:
            files.write_text(out / "latex" / f"{table.name}.tex", writers.latex(table, command))
        names = [table.name for table in report.tables]
        files.write_text(out / "latex" / "all.tex", writers.latex_document(names, command))
    if "html" in formats:
        written.append(out / "page.html")
        files.write_text(written[-1], page(report, command))
    return written


def _is_markdown(out: Path) -> bool:
    return out.suffix == ".md"


def _formats(text: str | None, out: Path) -> list[str]:
    """What to write: everything, or what was asked for; into one file only Markdown goes."""
    formats = _known(text, FORMATS, "--format") if text else list(FORMATS)
    if not _is_markdown(out):
        return formats
    if text and formats != ["md"]:
        raise UserError(f"--format: {text} does not go into the one file {out}; name a folder, or leave --format out")
    return ["md"]


def _known(text: str, known: Sequence[str], option: str) -> list[str]:
    """The words of a list with commas, each of ``known``."""
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known) or f" (known: {', '.join(known)})"
            raise UserError(f"{option}: {word!r} is not known{hint}")
    return words


def _first(remarks: Sequence[str]) -> list[str]:
    more = len(remarks) - SAID
    return [*remarks[:SAID], *([f"and {more} more, all of them in the files"] if more > 0 else [])]
