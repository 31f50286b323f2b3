"""Write the paper's tables, statistics and a web page from finished runs or their records."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from semilearn_ext import documents, files
from semilearn_ext.commands.argument_types import words
from semilearn_ext.errors import UserError, counted, did_you_mean, printable

if TYPE_CHECKING:
    from semilearn_ext.report.build import Report

HELP = "write tables, statistics and a web page from finished runs"
FORMATS = ("md", "csv", "latex", "html")
MAX_REMARKS = 30
"""Maximum number of remarks that are printed; the files contain all of them."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUNS", help="folders that contain runs or records")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("tables"),
        metavar="DIR",
        help="output folder, or a single file NAME.md (default: tables)",
    )
    parser.add_argument(
        "--tables",
        type=words,
        default=[],
        metavar="A,B",
        help="only these tables, for example label_10,ablation,summary (default: every table that has runs)",
    )
    parser.add_argument("--compare", type=words, default=[], metavar="A,B", help="methods to show side by side")
    parser.add_argument(
        "--released",
        type=Path,
        metavar="FILE",
        help="CSV file with results of the authors' code, to compare with, such as results/pacs96/released_code.csv",
    )
    parser.add_argument(
        "--metric",
        default="target/top1",
        metavar="NAME",
        help="any number recorded at the last evaluation, for example unlabeled/keep_rate (default: target/top1)",
    )
    parser.add_argument(
        "--protocol",
        choices=("last", "source_val", "oracle", "ema", "swa"),
        default="last",
        help="which evaluation to use for target/top1: the last one, the best one on held-out source images, the best "
        "one on the target domain (an upper bound), or the last one of averaged weights (default: last)",
    )
    parser.add_argument(
        "--format",
        type=words,
        default=[],
        metavar="A,B",
        help=f"output formats (default: {','.join(FORMATS)}; md for a single file)",
    )
    parser.add_argument(
        "--markdown",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="instead of RUNS: regenerate the marked tables in these Markdown files from the records that they name",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if a file does not match the runs, apart from rounding in the last digits",
    )
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.report.build import TABLES, build
    from semilearn_ext.report.metrics import Metric
    from semilearn_ext.report.writers import markdown

    if bool(arguments.runs) == bool(arguments.markdown):
        raise UserError("pass folders that contain runs or records, or Markdown files with --markdown")
    if arguments.markdown:
        _update_markdown(arguments.markdown, arguments.check)
        return
    names = _checked(arguments.tables, TABLES, "--tables") or TABLES
    formats = _formats(arguments.format, arguments.out)
    if len(arguments.compare) == 1:
        raise UserError(f"--compare: expected at least two methods, as in A,B, got only {arguments.compare[0]}")
    if len(set(arguments.compare)) < len(arguments.compare):
        raise UserError(f"--compare: {','.join(arguments.compare)}: a method is listed twice")
    report = build(arguments.runs, names, arguments.compare, arguments.protocol, Metric(arguments.metric))
    if arguments.released:
        from semilearn_ext.report.released import released_table

        place = int(bool(report.tables) and report.tables[0].name == "gains")  # the page opens on the gains
        released = released_table(report.results, arguments.released)
        report = report._replace(tables=[*report.tables[:place], released, *report.tables[place:]])
    if not report.tables:
        raise UserError("; ".join(report.absent))
    texts = render(report, arguments.out, formats, command_line())
    if arguments.check:
        from semilearn_ext.report.check import check_files

        check_files(texts)
        print(f"{arguments.out}: {counted(len(texts), 'file')} checked, no difference from the runs")
        return
    link = next((path.parent for path in texts if path.parent != arguments.out and path.parent.is_symlink()), None)
    if link is not None and not _is_markdown(arguments.out):
        raise UserError(f"--out: {link}: is a symbolic link, which is not followed when writing; remove it")
    try:
        for path, text in texts.items():
            files.write_text(path, text)
    except OSError as error:
        raise UserError(f"--out: {arguments.out}: cannot be written: {error.strerror}") from None
    print(markdown(report.tables[0]))
    for line in _first(report.remarks()):
        print(printable(line), file=sys.stderr)
    stale = left_by_others(texts, arguments.out)
    if stale:
        names = printable(", ".join(map(str, stale)))
        print(f"left over from an earlier command, not updated: {names}", file=sys.stderr)
    print(f"Wrote {', '.join(map(str, _to_open(texts, arguments.out)))}")


def _update_markdown(paths: Sequence[Path], check: bool) -> None:
    from semilearn_ext.report.check import check_files
    from semilearn_ext.report.excerpts import update

    texts = {path: update(documents.read_text(path), str(path)) for path in paths}
    if check:
        check_files(texts)
        return
    for path, text in texts.items():
        files.write_text(path, text)
        print(f"Wrote {path}")


def command_line() -> str:
    """The command as it was given, without ``--check``."""
    return shlex.join(["ssdg", *(word for word in sys.argv[1:] if word != "--check")])


def render(report: Report, out: Path, formats: Sequence[str], command: str) -> dict[Path, str]:
    """The files of the report, by path."""
    from semilearn_ext.report import writers
    from semilearn_ext.report.page import page
    from semilearn_ext.report.tables import each_run

    texts = {}
    if "md" in formats:
        path = out if _is_markdown(out) else out / "tables.md"
        texts[path] = writers.markdown_page(report.tables, command, report.remarks())
    if "csv" in formats:
        for table in report.tables:
            texts[out / "csv" / f"{table.name}.csv"] = writers.csv(table.data, command)
        texts[out / "csv" / "runs.csv"] = writers.csv(each_run(report.results), command)
    if "latex" in formats:
        for table in report.tables:
            texts[out / "latex" / f"{table.name}.tex"] = writers.latex(table, command)
        texts[out / "latex" / "all.tex"] = writers.latex_document([table.name for table in report.tables], command)
    if "html" in formats:
        texts[out / "page.html"] = page(report, command)
    return texts


def left_by_others(texts: Container[Path], out: Path) -> list[Path]:
    """Tables in ``out`` that were left by earlier commands and could be mistaken for those of this one."""
    if _is_markdown(out):
        return []
    marked = [path for path in sorted((*out.glob("csv/*.csv"), *out.glob("latex/*.tex"))) if _is_generated(path)]
    return [path for path in (out / "tables.md", *marked, out / "page.html") if path.is_file() and path not in texts]


def _is_generated(path: Path) -> bool:
    """Whether the file was written by a command, according to its first line."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(40)[2:].startswith(b"generated by: ")


def _to_open(paths: Iterable[Path], out: Path) -> list[Path]:
    """The files and folders that a reader opens."""
    return list(dict.fromkeys(path if path.parent in (out, out.parent) else path.parent for path in paths))


def _is_markdown(out: Path) -> bool:
    return out.suffix == ".md"


def _formats(given: Sequence[str], out: Path) -> Sequence[str]:
    """The requested formats, or all of them. A single file is Markdown."""
    formats = _checked(given, FORMATS, "--format")
    if not _is_markdown(out):
        return formats or FORMATS
    if formats not in ([], ["md"]):
        raise UserError(
            f"--format: {','.join(formats)} cannot be written to the single file {out}; pass a folder as --out"
        )
    return ["md"]


def _checked(given: Sequence[str], known: Sequence[str], option: str) -> Sequence[str]:
    """Return ``given`` after checking that every word is in ``known``."""
    for word in given:
        if word not in known:
            hint = did_you_mean(word, known) or f" (known: {', '.join(known)})"
            raise UserError(f"{option}: unknown {word!r}{hint}")
    return given


def _first(remarks: Sequence[str]) -> list[str]:
    more = len(remarks) - MAX_REMARKS
    return [*remarks[:MAX_REMARKS], *([f"and {more} more, all of which are in the files"] if more > 0 else [])]
