"""Accuracy on all unlabelled source images by epoch: a line a method, mean and spread over seeds. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from semilearn_ext.analysis import style
from semilearn_ext.analysis.finished import FinishedRun, check_comparable
from semilearn_ext.errors import UserError
from semilearn_ext.report.names import method_title
from semilearn_ext.settings.domains import DOMAINS

MEAN = "mean"
_ACCURACY = "unlabeled/top1"
_DASHES = ("-", "--", "-.", ":")


def points(runs: Sequence[FinishedRun]) -> pd.DataFrame:
    """A row a run and evaluation: method, target, seed, epoch, accuracy in percent."""
    return pd.DataFrame(
        {
            "method": run.method,
            "target": run.settings.target_domain,
            "seed": run.settings.seed,
            "epoch": record["epoch"],
            "accuracy": 100 * record[_ACCURACY],
        }
        for run in runs
        for record in run.folder.read_metrics()
    )


def with_mean(frame: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """``frame`` with the mean over targets as one more target, and what was left out of it.

    A seed counts in the mean when it has every target that the method, or any other, was run on.
    """
    targets = set(frame["target"])
    whole, left_out = [], []
    for (method, seed), rows in frame.groupby(["method", "seed"], sort=False):
        missing = targets - set(rows["target"])
        if missing:
            left_out.append(f"{method}, seed {seed}: not in the mean, without {', '.join(sorted(missing))}")
        else:
            mean = rows.groupby("epoch", as_index=False)["accuracy"].mean()
            whole.append(mean.assign(method=method, seed=seed, target=MEAN))
    return pd.concat([frame, *whole], ignore_index=True), left_out


def over_seeds(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean, standard deviation (n - 1; none for one seed) and number of seeds by method, target and epoch."""
    keys = ["method", "target", "epoch"]
    table = frame.groupby(keys, sort=False)["accuracy"].agg(["mean", "std", "count"]).reset_index()
    return table.rename(columns={"count": "seeds"})


def draw(table: pd.DataFrame, panels: Sequence[str]) -> Figure:
    """A panel a target and one for their mean; lines are means, bands one standard deviation on either side."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width = style.TWO_COLUMNS if columns > 1 else style.ONE_COLUMN
    figure = Figure(figsize=(width, 1.75 * rows + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for axis, target in zip(axes, panels, strict=False):
        for number, (method, line) in enumerate(table[table["target"] == target].groupby("method", sort=False)):
            colour, dash = style.COLOURS[number % len(style.COLOURS)], _DASHES[number % len(_DASHES)]
            marker = "o" if len(line) == 1 else None  # a line through one evaluation would not be seen
            axis.plot(line["epoch"], line["mean"], dash, color=colour, marker=marker, label=method_title(method))
            spread = line["std"].fillna(0)
            low, high = line["mean"] - spread, line["mean"] + spread
            axis.fill_between(line["epoch"], low, high, color=colour, alpha=0.2, linewidth=0)
        axis.set_title(target, fontweight="bold" if target == MEAN else None)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=bool(table["epoch"].max() >= 2)))
    for empty in axes[len(panels) :]:
        empty.set_axis_off()
    for axis in axes[max(len(panels) - columns, 0) : len(panels)]:
        axis.set_xlabel("epoch")
        axis.tick_params(labelbottom=True)
    for axis in axes[::columns]:
        axis.set_ylabel("accuracy (%)")
    lines, names = axes[0].get_legend_handles_labels()
    if len(axes) > len(panels):
        axes[-1].legend(lines, names, loc="center")
    else:
        figure.legend(lines, names, loc="outside lower center", ncols=min(4, len(names)))
    return figure


def main(runs: Sequence[FinishedRun], out: Path) -> str:
    check_comparable(runs, except_for=frozenset({"target domain", "seed"}))
    _check_one_config_a_method(runs)
    settings = runs[0].settings
    frame = points(runs)
    order = DOMAINS.get(settings.dataset, ())
    targets = sorted(set(frame["target"]), key=lambda name: (order.index(name) if name in order else 0, name))
    left_out: list[str] = []
    if len(targets) > 1:
        frame, left_out = with_mean(frame)
    table = over_seeds(frame)
    has_mean = MEAN in set(table["target"])
    panels = [*targets, MEAN] if has_mean else targets
    name = f"curves_{settings.dataset}_{settings.labels_per_class}lpc"
    with style.look():
        written = style.save(draw(table, panels), out, name)
    written.append(style.save_numbers(table, out, name))
    last = table[table["target"] == panels[-1]].groupby("method", sort=False).tail(1)
    shown = last.to_string(index=False, float_format=lambda value: f"{value:.1f}")
    title = f"accuracy on all unlabelled source images of {settings.dataset} in percent, last epoch"
    return "\n".join([title, shown, *left_out, *(f"written: {path}" for path in written)])


def _check_one_config_a_method(runs: Sequence[FinishedRun]) -> None:
    """A line is the mean of runs that differ in seed and target alone, each there once."""
    seen: dict[tuple[str, str, int], FinishedRun] = {}
    configs: dict[str, FinishedRun] = {}
    for run in runs:
        first = configs.setdefault(run.method, run)
        if first.result["config_hash"] != run.result["config_hash"]:
            raise UserError(
                f"{first.path} and {run.path}: both are called {run.method} but have other settings; "
                f"give one of them a --variant"
            )
        key = (run.method, run.settings.target_domain, run.settings.seed)
        if key in seen:
            raise UserError(f"{seen[key].path} and {run.path}: the same run twice")
        seen[key] = run
