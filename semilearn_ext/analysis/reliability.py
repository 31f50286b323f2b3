"""Reliability diagrams: accuracy and number of images by confidence, one column per method. Does not import torch.

Confidence is the highest probability. Bins of several seeds are joined, so their means are weighted by the number of
images. The expected calibration error is computed for each seed and then averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from semilearn_ext.analysis import style
from semilearn_ext.analysis.details import Panel, file_name, heading, read_panels
from semilearn_ext.analysis.load_run import FinishedRun


def join(calibrations: Sequence[Sequence[dict[str, Any]]]) -> pd.DataFrame:
    """One row per bin: its limits, the number of images in all runs, their mean confidence and their accuracy."""
    rows = []
    for number, bins in enumerate(zip(*calibrations, strict=True)):
        filled = [bin_ for bin_ in bins if bin_["count"]]
        count = sum(bin_["count"] for bin_ in filled)
        means = {
            name: sum(bin_["count"] * bin_[name] for bin_ in filled) / count if count else float("nan")
            for name in ("confidence", "accuracy")
        }
        width = 1 / len(calibrations[0])
        rows.append({"from": number * width, "to": (number + 1) * width, "images": count, **means})
    return pd.DataFrame(rows)


def draw(panels: Sequence[Panel], title: str) -> Figure:
    columns = len(panels)
    figure = Figure(figsize=(style.TWO_COLUMNS if columns > 1 else style.ONE_COLUMN + 0.5, 3.6))
    grid = figure.subplots(2, columns, squeeze=False, sharex=True, sharey="row", height_ratios=[3, 1])
    for (upper, lower), panel in zip(grid.T, panels, strict=True):
        table = join(panel.calibrations)
        left, width = 100 * table["from"], 100 * (table["to"] - table["from"])
        upper.bar(left, 100 * table["accuracy"], width, align="edge", color=style.SKY, ec="white", label="accuracy")
        upper.plot(
            100 * table["confidence"], 100 * table["accuracy"], "o", color=style.BLUE, ms=3, label="mean confidence"
        )
        upper.plot([0, 100], [0, 100], "--", color=style.GREY, label="perfectly calibrated")
        upper.set_title(f"{panel.title}\nECE {100 * mean(panel.errors):.1f} %")
        upper.set_xlim(0, 100)
        upper.set_ylim(0, 100)
        share = 100 * table["images"] / table["images"].sum()
        lower.bar(left, share, width, align="edge", color=style.ORANGE, ec="white")
        lower.set_xlabel("confidence (%)")
    grid[0][0].set_ylabel("accuracy (%)")
    grid[1][0].set_ylabel("images (%)")
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.suptitle(title, fontsize="medium")
    return figure


def main(runs: Sequence[FinishedRun], out: Path, images: str) -> str:
    panels, title = read_panels(runs, images), heading(runs[0], images)
    name = file_name("reliability", runs[0], images)
    tables = [
        join(panel.calibrations).assign(method=panel.method.name, seeds=len(panel.seeds), ece=mean(panel.errors))
        for panel in panels
    ]
    with style.look():
        written = style.save(draw(panels, title), out, name)
    columns = ["method", "from", "to", "images", "confidence", "accuracy", "ece", "seeds"]
    written.append(style.save_numbers(pd.concat(tables)[columns], out, name))
    lines = [f"{panel.title}: expected calibration error {100 * mean(panel.errors):.1f} %" for panel in panels]
    return "\n".join([title, *lines, *style.wrote(written)])
