"""Compare runs with those of another implementation, such as the authors' released code."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from semilearn_ext import documents
from semilearn_ext.errors import UserError, shown
from semilearn_ext.registry import PLUGINS
from semilearn_ext.report.baselines import find_baseline
from semilearn_ext.report.gains import PLUGIN
from semilearn_ext.report.layout import EMPTY, Cell, Column, Panel, Table, gain_text, number, signed
from semilearn_ext.report.methods import setting_title
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import paired_gain

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
                low, high, difference = values.min(), values.max(), values.mean() - line.accuracy
                title = f"{group.title} on {line.target}"
                data.append(
                    {
                        **{name: getattr(line, name) for name in KEY},
                        "title": title,
                        "setup": group.setup,
                        "released": line.accuracy,
                        "mean": values.mean(),
                        "low": low,
                        "high": high,
                        "deviation": values.std(),
                        "n": len(values),
                        "within": bool(low <= line.accuracy <= high) if len(values) > 1 else None,
                        "far": bool(abs(difference) > high - low) if len(values) > 1 else None,
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
                        Cell("yes" if data[-1]["within"] else "no") if len(values) > 1 else EMPTY,
                        Cell(", ".join(map(str, sorted(group_runs["seed"])))),
                    ]
                )
        title = setting_title(str(dataset), int(labels))
        if rows:
            panels.append(Panel(title, [Column(name) for name in _COLUMNS], rows, int(labels), str(dataset)))
    if not panels:
        raise UserError(f"--released: {file}: there are no runs of any of its methods and targets")
    frame = pd.DataFrame(data)
    notes = [*_judgement(frame), *([f"No runs of ours: {', '.join(absent)}."] if absent else [])]
    caption = (
        f"{results.what()}. Released code: {comment} Ours: the mean, the smallest and the largest value over the "
        "listed seeds. Difference: ours minus the released code's. Within our range: whether the number of the "
        "released code lies between our smallest and our largest value; a single run has no range."
    )
    return Table("released", "The released code and ours", caption, panels, frame.drop(columns="title"), notes)


def _judgement(frame: pd.DataFrame) -> list[str]:
    """What the ranges say: how many numbers are within them, how many should be, and which are far away."""
    judged = frame[frame["n"] > 1]
    if judged.empty:
        return ["No row has two seeds yet, so there is no range, and no row can show whether both codes behave alike."]
    expected = ((judged["n"] - 1) / (judged["n"] + 1)).sum()
    inside = int(judged["within"].astype(bool).sum())
    far = list(judged.loc[judged["far"].astype(bool), "title"])
    return [
        f"Of the {len(judged)} numbers of the released code for which we have at least two runs, {inside} "
        f"{'is' if inside == 1 else 'are'} within our range. If both codes behave alike, {expected:.1f} are expected: "
        "one more run lies within the range of n runs with a probability of (n - 1) / (n + 1), which is 50 % for "
        "three runs.",
        f"Further from our mean than our range is wide: {', '.join(far) or 'none'}.",
        *_chance(judged),
    ]


def _chance(judged: pd.DataFrame) -> list[str]:
    """Whether the differences of all rows together are larger than the scatter of our runs explains."""
    differences = judged["mean"] - judged["released"]
    test = pooled_test(differences, judged["deviation"], judged["n"])
    if test is None:
        return []
    p = f"p = {test.p:.2f}" if test.p >= 0.01 else "p below 0.01"
    return [
        f"Our runs scatter around the mean of their row with a standard deviation of {test.deviation:.1f} points "
        f"(pooled, {test.freedom} degrees of freedom). If both codes behave alike, the root mean square of the "
        f"differences is expected to be {test.expected:.1f} points; it is {math.sqrt((differences**2).mean()):.1f} "
        f"(F test over the rows with a range: {p})."
    ]


class PooledTest(NamedTuple):
    """The result of :func:`pooled_test`."""

    deviation: float
    """The standard deviation of a run, pooled over rows."""
    freedom: int
    expected: float
    """The root mean square that the differences have on average if both codes behave alike."""
    p: float


def pooled_test(differences: pd.Series, deviations: pd.Series, n: pd.Series) -> PooledTest | None:
    """Test whether single runs come from the same distributions as n runs per row; None if our runs do not differ.

    One run differs from the mean of n others with the variance s^2 (1 + 1 / n), where s is assumed to be the same in
    all rows. The mean of the squared differences, each divided by 1 + 1 / n, over s^2 then has an F distribution.

    Args:
        differences: the mean of our runs minus the single run, per row.
        deviations, n: the standard deviation (ddof 1) and the number of our runs, per row.
    """
    from scipy import stats

    freedom = int((n - 1).sum())
    variance = float(((n - 1) * deviations**2).sum() / freedom)
    if not variance:
        return None
    ratio = float((differences**2 / (1 + 1 / n)).mean() / variance)
    expected = math.sqrt(variance * (1 + 1 / n).mean())
    return PooledTest(math.sqrt(variance), freedom, expected, float(stats.f.sf(ratio, len(n), freedom)))


def parity_panel(results: Results, file: Path) -> Panel:
    """One row per target with both codes' accuracy of a base and of the base with UPCSC, and the gain of UPCSC."""
    numbers, _ = read_numbers(file)
    printed = numbers.set_index(KEY)["accuracy"].to_dict()
    runs = {Group(*key): group_runs for key, group_runs in results.runs.groupby(GROUP)}
    rows: list[list[Cell]] = []
    for cell in results.cells.itertuples():
        baseline, _ = find_baseline(cell, results.cells, results.configs)
        if cell.method.plugins != (PLUGIN,) or cell.method.variant or baseline is None:
            continue
        group = Group.of(cell)
        for target in results.targets[group.dataset]:
            keys = [(group.dataset, group.labels, name.method.name, target) for name in (baseline, group)]
            own_runs = [runs[name][runs[name]["target"] == target] for name in (baseline, group)]
            if not all(key in printed for key in keys) or not any(map(len, own_runs)):
                continue
            released = [printed[key] for key in keys]
            gain = paired_gain(own_runs[1], own_runs[0])
            pairs = [Cell(f"{accuracy:.1f}") for accuracy in released]
            rows.append(
                [
                    Cell(f"{target}, {baseline.title}"),
                    *(cell for pair in zip(pairs, map(_mean_and_range, own_runs), strict=True) for cell in pair),
                    Cell(signed(released[1] - released[0])),
                    Cell(gain_text(gain.mean, gain.low, gain.high)) if gain.pairs else EMPTY,
                ]
            )
    if not rows:
        raise UserError(f"{file}: there are no runs with and without {PLUGIN} on any of its targets")
    title = PLUGINS.get(PLUGIN, "plug-in").title
    columns = ("released", "ours", f"+ {title}: released", "ours", "gain: released", "ours, 95 % interval")
    return Panel("", [Column(name) for name in ("Target and base", *columns)], rows)


def _mean_and_range(runs: pd.DataFrame) -> Cell:
    """``58.8 (57.0 to 61.2) [n=3]``."""
    if runs.empty:
        return EMPTY
    values = runs["value"]
    between = f" ({values.min():.1f} to {values.max():.1f})" if len(values) > 1 else ""
    return Cell(f"{values.mean():.1f}{between}", seeds=len(values))
