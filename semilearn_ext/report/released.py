"""Compare runs with those of another implementation, such as the authors' released code."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from semilearn_ext import documents
from semilearn_ext.errors import UserError, shown
from semilearn_ext.report.layout import EMPTY, Cell, Column, Panel, Table, number, signed
from semilearn_ext.report.methods import setting_title
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import Group

KEY = ["dataset", "labels_per_class", "method", "target"]
_COLUMNS = (
    "Target",
    "Method",
    "released code",
    "ours (mean)",
    "ours (range)",
    "difference",
    "within our range",
    "seeds",
)


def read_numbers(file: Path) -> tuple[pd.DataFrame, str]:
    """Read the CSV file with the columns ``KEY`` and ``accuracy`` in percent, and its comments, which describe it."""
    text = documents.read_text(file)
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("#"))
    try:
        frame = pd.read_csv(io.StringIO(text), comment="#")
    except (ValueError, pd.errors.ParserError) as error:
        raise UserError(f"--released: {file}: cannot be read: {error}") from None
    missing = [name for name in (*KEY, "accuracy") if name not in frame.columns]
    if missing:
        raise UserError(f"--released: {file}: no column {', '.join(missing)}")
    for name, is_valid, expected in (
        ("labels_per_class", lambda value: value >= 1 and value == int(value), "a positive integer"),
        ("accuracy", lambda value: 0 <= value <= 100, "a percentage from 0 to 100"),
    ):
        for value in frame[name]:
            if not _is(value, is_valid):
                raise UserError(f"--released: {file}: {name}: expected {expected}, got {shown(value)}")
    duplicates = frame[frame.duplicated(KEY)]
    if len(duplicates):
        values = ", ".join(map(str, duplicates[KEY].iloc[0]))
        raise UserError(f"--released: {file}: {values} is listed twice; remove one of the lines")
    return frame.astype({"labels_per_class": int, "accuracy": float}), comment


def _is(value: object, is_valid: Callable[[float], bool]) -> bool:
    try:
        return is_valid(float(str(value)))
    except (ValueError, OverflowError):
        return False


def released_table(results: Results, file: Path) -> Table:
    """One row per target and method of ``file``, for each of our experiments with it, with our mean and range."""
    numbers, comment = read_numbers(file)
    panels, data, absent = [], [], []
    for (dataset, labels), released in numbers.groupby(["dataset", "labels_per_class"], sort=False):
        rows = []
        for line in released.itertuples():
            runs = results.runs[
                (results.runs["dataset"] == dataset)
                & (results.runs["labels"] == labels)
                & (results.runs["target"] == line.target)
                & (results.runs["method"].map(lambda method: method.name) == line.method)
            ]
            if runs.empty:
                absent.append(f"{line.method} on {line.target}")
            for _, group_runs in runs.groupby("setup", sort=False):
                group, values = Group.of(group_runs.iloc[0]), group_runs["value"]
                low, high = values.min(), values.max()
                difference = values.mean() - line.accuracy
                inside = bool(abs(difference) <= high - low)
                data.append(
                    {
                        **{name: getattr(line, name) for name in KEY},
                        "setup": group.setup,
                        "released": line.accuracy,
                        "mean": values.mean(),
                        "low": low,
                        "high": high,
                        "n": len(values),
                        "within": inside,
                    }
                )
                rows.append(
                    [
                        Cell(line.target, line.target),
                        Cell(group.title, group.title.lower()),
                        number(line.accuracy),
                        number(values.mean()),
                        Cell(f"{low:.1f} to {high:.1f}", low) if len(values) > 1 else EMPTY,
                        Cell(signed(difference), difference),
                        Cell("yes" if inside else "no") if len(values) > 1 else EMPTY,
                        Cell(", ".join(map(str, sorted(group_runs["seed"])))),
                    ]
                )
        title = setting_title(str(dataset), int(labels))
        if rows:
            panels.append(Panel(title, [Column(name) for name in _COLUMNS], rows, int(labels), str(dataset)))
    if not panels:
        raise UserError(f"--released: {file}: there are no runs of any of its methods and targets")
    notes = [f"No runs: {', '.join(absent)}."] if absent else []
    caption = (
        f"{results.what()}. Released code: {comment} Ours: the mean, the smallest and the largest value over the "
        "listed seeds. Difference: ours minus the released code's. Within range: the difference is not larger than the "
        "width of our range."
    )
    return Table("released", "The released code and ours", caption, panels, pd.DataFrame(data), notes)
