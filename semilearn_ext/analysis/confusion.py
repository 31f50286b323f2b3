"""Confusion matrices, one per method, with a shared colour scale. Does not import torch.

A cell is the percentage of the images of a true class (row) that were predicted as a class (column), averaged over
seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from semilearn_ext.analysis import style
from semilearn_ext.analysis.details import Panel, file_name, heading, read_panels
from semilearn_ext.analysis.load_run import FinishedRun

CELL = 0.25
"""Side of a cell in inches, large enough for three digits."""
SHOWN = 3


def shares(panel: Panel) -> np.ndarray:
    """Percentages (C, C), whose rows sum to 100; NaN for a class without images."""
    counts = np.asarray(panel.confusions, dtype=float)
    totals = counts.sum(2, keepdims=True)
    percent = np.divide(100 * counts, totals, out=np.full_like(counts, np.nan), where=totals > 0)
    return np.asarray(percent.mean(0))


def numbers(panels: Sequence[Panel]) -> pd.DataFrame:
    """One row per method, true class and predicted class: the mean number of images per seed and the percentage."""
    rows = []
    for panel in panels:
        images, percent = np.mean(panel.confusions, axis=0), shares(panel)
        rows += [
            {
                "method": panel.method.name,
                "true": true,
                "predicted": predicted,
                "images": images[i, j],
                "percent": percent[i, j],
                "seeds": len(panel.seeds),
            }
            for i, true in enumerate(panel.classes)
            for j, predicted in enumerate(panel.classes)
        ]
    return pd.DataFrame(rows)


def draw(panels: Sequence[Panel], title: str) -> Figure:
    classes = panels[0].classes
    side = max((style.TWO_COLUMNS - 0.5) / 2, CELL * len(classes) + 0.6)
    rotation = 0 if max(map(len, classes)) <= 2 else 90
    figure = Figure(figsize=(side * len(panels) + 0.5, side + 0.4))
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axis, panel in zip(axes, panels, strict=True):
        percent = shares(panel)
        image = axis.imshow(percent, cmap=style.SURFACE, vmin=0, vmax=100)
        for (i, j), value in np.ndenumerate(percent):
            if value >= 0.5:  # smaller ones would be printed as 0
                axis.text(j, i, f"{value:.0f}", ha="center", va="center", color="black" if value > 50 else "white")
        axis.set_xticks(range(len(classes)), classes, rotation=rotation)
        axis.set_yticks(range(len(classes)), classes)
        axis.grid(visible=False)
        axis.set_title(panel.title)
        axis.set_xlabel("predicted class")
    axes[0].set_ylabel("true class")
    figure.colorbar(image, ax=axes, label="images of the true class (%)", shrink=0.8)
    figure.suptitle(title, fontsize="medium")
    return figure


def main(runs: Sequence[FinishedRun], out: Path, images: str) -> str:
    panels, title = read_panels(runs, images), heading(runs[0], images)
    name = file_name("confusion", runs[0], images)
    table = numbers(panels)
    with style.look():
        written = style.save(draw(panels, title), out, name)
    written.append(style.save_numbers(table, out, name))
    mistakes = table[table["true"] != table["predicted"]].sort_values("percent", ascending=False, kind="stable")
    lines = []
    for panel in panels:
        worst = mistakes[mistakes["method"] == panel.method.name].head(SHOWN).itertuples()
        listed = ", ".join(f"{row.true} as {row.predicted} ({row.percent:.0f} %)" for row in worst)
        lines.append(f"{panel.title}: the most frequent mistakes are {listed}")
    return "\n".join([title, *lines, *style.wrote(written)])
