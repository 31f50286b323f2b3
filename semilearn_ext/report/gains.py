"""The gain of a plug-in over each base algorithm, paired by target and seed."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.registry import PLUGINS
from semilearn_ext.report.baselines import find_baseline, note_lines
from semilearn_ext.report.layout import Cell, Column, Panel, Table, number, signed, wins_text
from semilearn_ext.report.methods import MethodId, setting_title
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import paired_gain

COLUMNS = [
    *("dataset", "labels", "base", "method", "title", "base_mean", "mean", "gain", "low", "high", "wins", "ties"),
    *("pairs", "seeds"),
]
PLUGIN = "upcsc"
"""The plug-in that the paper proposes."""
MAX_LINES = 6
"""Maximum number of lines that a chart shows unless others are chosen."""
EXPLANATION = (
    "Gain: the mean over targets of the difference from the base, paired by target and seed. Runs without a "
    "counterpart are left out, also of the two means. Interval: 95 % percentile bootstrap over seeds, stratified by "
    "target, which is too narrow with few seeds; there is none if a target has a single pair. It treats the runs of "
    "one seed on several targets as independent; that of the table statistics does not, and is often wider."
)


def gains(results: Results, plugin: str) -> tuple[pd.DataFrame, list[str]]:
    """One row per benchmark, label count and method with ``plugin`` alone, and notes.

    The largest gain is first, and variants of the plug-in follow after the plug-in itself.
    """
    runs = {Group(*key): group_runs for key, group_runs in results.runs.groupby(GROUP)}
    rows, notes = [], []
    for cell in results.cells.itertuples():
        if cell.method.plugins != (plugin,):
            continue
        baseline, baseline_notes = find_baseline(cell, results.cells, results.configs)
        notes += baseline_notes
        if baseline is None:
            continue
        group = Group.of(cell)
        gain = paired_gain(runs[group], runs[baseline])
        if not gain.pairs:
            continue
        base, mean = (
            _mean_where(runs[first], runs[second]) for first, second in ((baseline, group), (group, baseline))
        )
        of_variant = f", {_title(group)}" if group.method.variant else ""
        label = group.title.replace(f" + {_title(group)}", of_variant, 1)
        row = (group.dataset, group.labels, group.method.base, group.method.name, label, base, mean)
        rows.append((*row, gain.mean, gain.low, gain.high, gain.wins, gain.ties, gain.pairs, gain.seeds))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame = frame.assign(variant=frame["method"].str.contains("--"))
    order = ["dataset", "labels", "variant", "gain"]
    frame = frame.sort_values(order, ascending=[True, False, True, False], ignore_index=True)
    return frame.drop(columns="variant"), note_lines(notes)


def pairs_first(methods: Iterable[MethodId]) -> list[MethodId]:
    """``methods`` without duplicates: first every base next to the base with UPCSC, then all others."""
    methods = list(dict.fromkeys(methods))
    with_plugin = [method for method in methods if method.plugins == (PLUGIN,) and not method.variant]
    pairs = [(MethodId(method.base), method) for method in with_plugin if MethodId(method.base) in methods]
    return list(dict.fromkeys([*(method for pair in pairs for method in pair), *methods]))


def _mean_where(runs: pd.DataFrame, other: pd.DataFrame) -> float:
    """The mean over targets of the runs that have a counterpart in ``other``."""
    pairs = runs.merge(other[["target", "seed"]], on=["target", "seed"])
    return float(pairs.groupby("target")["value"].mean().mean())


def check_not_empty(table: pd.DataFrame, results: Results, plugin: str) -> None:
    if table.empty:
        known = sorted({cell.method.plugins[0] for cell in results.cells.itertuples() if len(cell.method.plugins) == 1})
        names = ", ".join(known) or "none"
        raise UserError(f"no runs of a base with and without {plugin} (plug-ins with runs: {names})")


def gains_table(results: Results) -> Table | None:
    """The gain of UPCSC over every base; None if there are no runs with and without it."""
    frame, notes = gains(results, PLUGIN)
    if frame.empty:
        return None
    title = PLUGINS.get(PLUGIN, "plug-in").title
    decimals = results.metric.decimals
    panels = []
    for (dataset, labels), setting_rows in frame.groupby(["dataset", "labels"], sort=False):
        rows = [
            [
                Cell(row.title, row.title.lower()),
                Cell(signed(row.gain, decimals), row.gain),
                interval_cell(row.low, row.high, decimals),
                Cell(wins_text(row.wins, row.pairs, row.ties), row.wins / row.pairs),
                number(row.base_mean, decimals),
                number(row.mean, decimals),
                number(float(row.seeds), 0),
            ]
            for row in setting_rows.itertuples()
        ]
        columns = ("Base", "gain", "95 % interval", "wins", "base", f"+ {title}", "seeds")
        dataset, labels = str(dataset), int(labels)
        panels.append(Panel(setting_title(dataset, labels), [Column(name) for name in columns], rows, labels, dataset))
    text = f"{results.what()}. {EXPLANATION} Wins: pairs of target and seed in which the base with {title} is better."
    data = frame.drop(columns="title").rename(columns={"labels": "labels_per_class"})
    return Table("gains", results.titled(f"What {title} adds to its base"), text, panels, data, notes)


def _title(group: Group) -> str:
    base = group.method.baseline
    with_plugin = type(group.method)(group.method.base, group.method.plugins)
    return with_plugin.title.removeprefix(f"{base.title} + ") if base else ""


def interval_cell(low: float, high: float, decimals: int = 1) -> Cell:
    """``−0.2 to +1.4``."""
    return Cell(f"{signed(low, decimals)} to {signed(high, decimals)}", low) if low == low else number(low)
