"""Plot the gain of a plug-in over every base algorithm, with intervals. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from semilearn_ext.analysis import style
from semilearn_ext.registry import PLUGINS
from semilearn_ext.report.build import build
from semilearn_ext.report.gains import EXPLANATION, check_not_empty, gains, interval_cell
from semilearn_ext.report.layout import SEEDS, signed, wins_text
from semilearn_ext.report.methods import setting_title

LONG_LABEL = 30
_KINDS = {
    (style.BLUE, style.BLUE): "95 % interval above 0",
    (style.RED, style.RED): "95 % interval below 0",
    (style.BLACK, style.BLACK): "95 % interval contains 0",
    (style.BLACK, "white"): "too few seeds for an interval",
}
"""Colours of edge and inside of a dot, and their meaning."""


def draw(table: pd.DataFrame, plugin: str, setting: str) -> Figure:
    """One row per base, the largest gain on top. Dots: gains. Lines: intervals, which need at least two seeds."""
    labels = [_label(row) for row in table.itertuples()]
    width = style.TWO_COLUMNS if max(map(len, labels)) > LONG_LABEL else style.ONE_COLUMN + 0.6
    figure = Figure(figsize=(width, 0.24 * len(table) + 1.2))
    axis = figure.subplots()
    rows = np.arange(len(table))[::-1]
    axis.axvline(0, color=style.GREY, linewidth=0.8)
    colours = [_colour(low, high) for low, high in zip(table["low"], table["high"], strict=True)]
    for row, low, high, colour in zip(rows, table["low"], table["high"], colours, strict=True):
        axis.plot([low, high], [row, row], color=colour)
    filled = [colour if np.isfinite(low) else "white" for low, colour in zip(table["low"], colours, strict=True)]
    axis.scatter(table["gain"], rows, c=filled, edgecolors=colours, linewidths=0.8, s=16, zorder=3)
    axis.set_yticks(rows, labels)
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(f"gain of {plugin} in target accuracy (points)")
    axis.set_title(setting)
    kinds = {key: text for key, text in _KINDS.items() if key in zip(colours, filled, strict=True)}
    dots = [Line2D([], [], color=edge, mfc=inside, marker="o", ls="none", ms=4, mew=0.8) for edge, inside in kinds]
    look = {"title": "in parentheses: accuracy of the base", "title_fontsize": style.SMALL, "handletextpad": 0.1}
    figure.legend(dots, list(kinds.values()), loc="outside lower center", ncols=2, **look)
    return figure


def _label(row: Any) -> str:
    """``FreeMatch (76.9, n=3)``."""
    seeds = "" if row.seeds == SEEDS else f", n={row.seeds}"
    return f"{row.title} ({row.base_mean:.1f}{seeds})"


def _colour(low: float, high: float) -> str:
    """Blue if better, red if worse, black if the interval contains zero or does not exist."""
    return style.BLUE if low > 0 else style.RED if high < 0 else style.BLACK


def main(roots: Sequence[Path], out: Path, plugin: str) -> str:
    report = build(roots, (), (), "last")
    table, notes = gains(report.results, plugin)
    check_not_empty(table, report.results, plugin)
    title = PLUGINS.get(plugin, "plug-in").title if plugin in PLUGINS else plugin
    parts = []
    for (dataset, labels), group in table.groupby(["dataset", "labels"], sort=False):
        name = f"gains_{plugin}_{str(dataset).replace(' ', '_')}_{labels}lpc"
        setting = setting_title(str(dataset), int(labels))
        with style.look():
            written = style.save(draw(group, title, setting), out, name)
        written.append(style.save_numbers(group.drop(columns="title"), out, name))
        shown = pd.DataFrame(
            {
                "base": group["title"],
                "accuracy of the base": group["base_mean"].map("{:.1f}".format),
                "gain": group["gain"].map(signed),
                "95 % interval": [interval_cell(row.low, row.high).text for row in group.itertuples()],
                "wins": [wins_text(row.wins, row.pairs, row.ties) for row in group.itertuples()],
                "seeds": group["seeds"],
            }
        )
        parts += [f"Gain of {title} on {setting}, in points", shown.to_string(index=False), *style.wrote(written)]
    return "\n".join([*parts, EXPLANATION, *notes, *report.remarks()])
