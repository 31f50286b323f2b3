"""What a plug-in adds to each base algorithm, paired by target and seed."""

from __future__ import annotations

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.baselines import find_baseline, note_lines
from semilearn_ext.report.layout import Cell, number, signed
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import paired_gain

COLUMNS = ["dataset", "labels", "base", "method", "title", "base_mean", "gain", "low", "high", "wins", "pairs", "seeds"]
EXPLANATION = (
    "Gain: the mean over targets of the difference from the base, paired by target and seed. Interval: 95 % percentile "
    "bootstrap over seeds, stratified by target, which is too narrow with few seeds."
)


def gains(results: Results, plugin: str) -> tuple[pd.DataFrame, list[str]]:
    """One row per benchmark, label count and method with ``plugin`` alone, the largest gain first; and notes."""
    runs = {Group(*key): same for key, same in results.runs.groupby(GROUP)}
    rows, notes = [], []
    for cell in results.cells.itertuples():
        if cell.method.plugins != (plugin,):
            continue
        baseline, about = find_baseline(cell, results.cells, results.configs)
        notes += about
        if baseline is None:
            continue
        group = Group.of(cell)
        gain = paired_gain(runs[group], runs[baseline])
        if not gain.pairs:
            continue
        base = runs[baseline].groupby("target")["value"].mean().mean()
        label = group.title.replace(f" + {_title(group)}", "", 1)
        row = (group.dataset, group.labels, group.method.base, group.method.name, label, base)
        rows.append((*row, gain.mean, gain.low, gain.high, gain.wins, gain.pairs, gain.seeds))
    if not rows:
        known = sorted({cell.method.plugins[0] for cell in results.cells.itertuples() if len(cell.method.plugins) == 1})
        raise UserError(
            f"no runs of a base with and without {plugin} (plug-ins with runs: {', '.join(known) or 'none'})"
        )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    order = ["dataset", "labels", "gain"]
    return frame.sort_values(order, ascending=[True, False, False], ignore_index=True), note_lines(notes)


def _title(group: Group) -> str:
    base = group.method.baseline
    with_plugin = type(group.method)(group.method.base, group.method.plugins)
    return with_plugin.title.removeprefix(f"{base.title} + ") if base else ""


def interval_cell(low: float, high: float, decimals: int = 1) -> Cell:
    """``−0.2 to +1.4``."""
    return Cell(f"{signed(low, decimals)} to {signed(high, decimals)}", low) if low == low else number(low)
