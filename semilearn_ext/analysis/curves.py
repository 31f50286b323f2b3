"""A metric over epochs: one line per method, mean and standard deviation over seeds. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from semilearn_ext.analysis import style
from semilearn_ext.analysis.load_run import FinishedRun, check_comparable, check_one_experiment_per_method
from semilearn_ext.errors import UserError
from semilearn_ext.report.aggregate import incomplete_seeds, on_common_epochs, over_seeds, seed_means
from semilearn_ext.report.methods import dataset_title, domains_of, labels_title
from semilearn_ext.report.metrics import NOT_METRICS, Metric
from semilearn_ext.runs.result import scalars

MEAN = "mean"
DEFAULT_METRIC = "unlabeled/top1"
_METHOD = ["dataset", "method"]
_DASHES = ("-", "--", "-.", ":")


def read_points(runs: Sequence[FinishedRun], metric: Metric) -> pd.DataFrame:
    """One row per run and evaluation that measured ``metric``: dataset, method, target, seed, epoch and value."""
    recorded: dict[str, None] = {}
    rows = []
    for run in runs:
        about = {
            "dataset": run.settings.dataset,
            "method": run.method,
            "target": run.settings.target_domain,
            "seed": run.settings.seed,
        }
        for record in run.folder.read_metrics():
            values = scalars(record)
            recorded |= dict.fromkeys(values)
            if metric.name in values:
                rows.append({**about, "epoch": record["epoch"], "value": metric.factor * values[metric.name]})
    if not rows:
        names = ", ".join(sorted(set(recorded) - set(NOT_METRICS)))
        raise UserError(f"--metric: no run recorded {metric.name!r} (recorded: {names})")
    return pd.DataFrame(rows)


def average(points: pd.DataFrame, targets: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Mean, standard deviation (ddof 1) and number of seeds per method, target and epoch, and over all ``targets``.

    The mean over targets is over complete seeds only. Also returns one line per method whose other seeds are left out.
    """
    points = on_common_epochs(points, _METHOD, ["value"])
    by = [*_METHOD, "epoch"]
    table = over_seeds(points, [*by, "target"])
    if len(targets) == 1:
        return table, []
    wanted = dict.fromkeys(points["dataset"], targets)
    means = over_seeds(seed_means(points, wanted, by), by).assign(target=MEAN)
    left_out = [
        f"{row.method.title}, seed {row.seed}: not in the mean, because there is no run on {', '.join(row.missing)}"
        for row in incomplete_seeds(points, wanted, _METHOD).itertuples()
    ]
    return pd.concat([table, means], ignore_index=True), left_out


def draw(table: pd.DataFrame, panels: Sequence[str], metric: Metric) -> Figure:
    """One panel per target and one for their mean. Lines: means. Bands: one standard deviation to each side."""
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width = style.TWO_COLUMNS if columns > 1 else style.ONE_COLUMN
    figure = Figure(figsize=(width, 1.75 * rows + 0.3))
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    numbers = {method: number for number, method in enumerate(dict.fromkeys(table["method"]))}
    for axis, target in zip(axes, panels, strict=False):
        for method, line in table[table["target"] == target].groupby("method", sort=False):
            number = numbers[method]
            colour, dash = style.COLOURS[number % len(style.COLOURS)], _DASHES[number % len(_DASHES)]
            marker = "o" if len(line) == 1 else None  # a line through one point is invisible
            axis.plot(line["epoch"], line["mean"], dash, color=colour, marker=marker, label=method.title)
            deviation = line["std"].fillna(0)
            low, high = line["mean"] - deviation, line["mean"] + deviation
            axis.fill_between(line["epoch"], low, high, color=colour, alpha=0.2, linewidth=0)
        is_mean = target == MEAN
        axis.set_title("mean over targets" if is_mean else f"target: {target}", fontweight="bold" if is_mean else None)
        axis.xaxis.set_major_locator(MaxNLocator(nbins=5, integer=bool(table["epoch"].max() >= 2)))
    for unused in axes[len(panels) :]:
        unused.set_axis_off()
    for axis in axes[max(len(panels) - columns, 0) : len(panels)]:
        axis.set_xlabel("epoch")
        axis.tick_params(labelbottom=True)
    figure.supylabel(metric.axis, fontsize="medium")
    drawn = [pair for axis in axes for pair in zip(*axis.get_legend_handles_labels(), strict=True)]
    by_title = {title: line for line, title in drawn}
    titles = [method.title for method in numbers]
    lines = [by_title[title] for title in titles]
    if len(axes) > len(panels):
        axes[-1].legend(lines, titles, loc="center")
    else:
        figure.legend(lines, titles, loc="outside lower center", ncols=min(4, len(titles)))
    return figure


def main(runs: Sequence[FinishedRun], out: Path, metric: Metric) -> str:
    check_comparable(runs, except_for=frozenset({"target domain", "seed"}))
    check_one_experiment_per_method(runs)
    settings = runs[0].settings
    points = read_points(runs, metric)
    order = domains_of(settings.dataset)
    targets = sorted(set(points["target"]), key=lambda name: (order.index(name) if name in order else 0, name))
    table, left_out = average(points, targets)
    panels = [*targets, MEAN] if MEAN in set(table["target"]) else targets
    suffix = "" if metric.name == DEFAULT_METRIC else f"_{metric.name.replace('/', '_')}"
    name = f"curves_{settings.dataset}_{settings.labels_per_class}lpc{suffix}"
    with style.look():
        written = style.save(draw(table, panels, metric), out, name)
    table = table.assign(method=table["method"].map(lambda method: method.name)).rename(columns={"n": "seeds"})
    table = table[["method", "target", "epoch", "mean", "std", "seeds"]]
    written.append(style.save_numbers(table, out, name))
    last = table[table["target"] == panels[-1]].groupby("method", sort=False).tail(1)
    body = last.to_string(index=False, float_format=lambda value: f"{value:.{metric.decimals}f}")
    setting = f"{dataset_title(settings.dataset)}, {labels_title(settings.labels_per_class)}"
    return "\n".join([f"{metric.axis}, {setting}, last epoch", body, *left_out, *style.wrote(written)])
