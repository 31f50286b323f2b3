"""Plot a metric over epochs: one line per method, mean and standard deviation over seeds. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from semilearn_ext.analysis import style
from semilearn_ext.analysis.load_run import check_conditions, conditions_of
from semilearn_ext.errors import UserError
from semilearn_ext.report.aggregate import incomplete_seeds, on_common_epochs, over_seeds, seed_means
from semilearn_ext.report.build import find_methods
from semilearn_ext.report.evaluations import metric_names, read_evaluations
from semilearn_ext.report.gains import MAX_LINES, pairs_first
from semilearn_ext.report.layout import SEEDS
from semilearn_ext.report.methods import domains_of, setting_title
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.records import RUN, different_images, read_all
from semilearn_ext.report.run_groups import read_configs
from semilearn_ext.settings import Settings

MEAN = "mean"
DEFAULT_METRIC = "unlabeled/top1"
_METHOD = ["dataset", "method"]
_DASHES = ("-", "--", "-.", ":")
_LEGEND_WIDTH = 24


def read_runs(roots: Sequence[Path], methods: Sequence[str] = ()) -> tuple[pd.DataFrame, list[str]]:
    """The runs of ``methods`` (all if empty) below ``roots``: finished and comparable, one experiment per method.

    Also returns one message per result of another format, which is left out.
    """
    runs, unfinished, warnings = read_all(roots, strict=True)
    if len(unfinished):
        path = unfinished.loc[0, "path"]
        raise UserError(f"{path}: the run is not finished; re-run its training command to resume it")
    if runs.empty:
        raise UserError(warnings[0] if warnings else f"{', '.join(map(str, roots))}: contains no runs")
    if methods:
        chosen = find_methods(methods, runs["method"], "--methods")
        runs = runs[runs["method"].isin(chosen)].reset_index(drop=True)
    configs, unread = read_configs(runs)
    if unread:
        raise UserError(unread[0].removesuffix("; its settings are not shown"))
    check_conditions(
        [
            (row.path, conditions_of({**Settings().flat(), **configs[row.config_hash], "dataset": row.dataset}))
            for row in runs.drop_duplicates(["dataset", "labels", "config_hash"]).itertuples()
        ]
    )
    for method, method_runs in runs.groupby("method", sort=False):
        first = method_runs.iloc[0]
        for other in method_runs[method_runs["config_hash"] != first["config_hash"]].itertuples():
            raise UserError(
                f"{first['path']} and {other.path}: both are runs of {method.title}, but with different settings; "
                f"train one of them with a --variant"
            )
        decoded = method_runs.dropna(subset="pixels").drop_duplicates("pixels")["path"]
        if len(decoded) > 1:
            raise UserError(
                f"{decoded.iloc[0]} and {decoded.iloc[1]}: cannot be averaged, because their images were decoded "
                f"differently; pass only runs with the same images"
            )
    duplicates = runs[runs.duplicated(RUN, keep=False)]
    if len(duplicates):
        first, second = duplicates["path"].iloc[:2]
        raise UserError(f"{first} and {second}: both are the same run; pass only one of them")
    return runs, [*warnings, *different_images(runs)]


def read_points(runs: pd.DataFrame, metric: Metric) -> tuple[pd.DataFrame, list[str]]:
    """One row per run and evaluation that measured ``metric``: dataset, method, target, seed, epoch and value.

    Also returns a message about runs whose evaluations cannot be read.
    """
    evaluations, unread = read_evaluations(runs.assign(setup=""))
    recorded = metric_names(evaluations)
    if metric.name not in recorded:
        raise UserError(f"--metric: no run recorded {metric.name!r} (recorded: {', '.join(sorted(recorded))})")
    points = evaluations.assign(value=metric.factor * evaluations[metric.name])
    return points[["dataset", "method", "target", "seed", "epoch", "value"]].dropna().reset_index(drop=True), unread


def average(points: pd.DataFrame, targets: Sequence[str]) -> tuple[pd.DataFrame, list[str]]:
    """Mean, standard deviation (ddof 1) and number of seeds per method, target and epoch, and over all ``targets``.

    The mean over targets uses complete seeds only. Also returns one line per seed that is left out.
    """
    points = on_common_epochs(points, _METHOD, ["value"])
    by = [*_METHOD, "epoch"]
    table = over_seeds(points, [*by, "target"])
    if len(targets) == 1:
        return table, []
    all_targets = dict.fromkeys(points["dataset"], targets)
    means = over_seeds(seed_means(points, all_targets, by), by).assign(target=MEAN)
    left_out = [
        f"{row.method.title}, seed {row.seed}: not in the mean, because there is no run on {', '.join(row.missing)}"
        for row in incomplete_seeds(points, all_targets, _METHOD).itertuples()
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
            colours = len(style.COLOURS)
            colour, dash = style.COLOURS[number % colours], _DASHES[(number + number // colours) % len(_DASHES)]
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
    lines = [by_title[method.title] for method in numbers]
    seeds = table.groupby("method", sort=False)["n"].max()
    titles = [f"{method.title}{'' if seeds[method] == SEEDS else f' [n={seeds[method]}]'}" for method in numbers]
    heading = "mean and standard deviation over seeds"
    if len(axes) > len(panels):
        # Wrapped, because a legend wider than its column would push the panels apart.
        titles, heading = [fill(title, _LEGEND_WIDTH) for title in titles], fill(heading, _LEGEND_WIDTH)
        axes[-1].legend(lines, titles, loc="center", alignment="left", title=heading, title_fontsize=style.SMALL)
    else:
        columns = min(4, len(titles))
        figure.legend(
            lines, titles, loc="outside lower center", ncols=columns, title=heading, title_fontsize=style.SMALL
        )
    return figure


def main(roots: Sequence[Path], out: Path, metric: Metric, methods: Sequence[str] = ()) -> str:
    """Draw the curves of ``methods``, or of at most six of those with runs below ``roots``."""
    runs, outdated = read_runs(roots, methods)
    shown = list(dict.fromkeys(runs["method"])) if methods else pairs_first(runs["method"])[:MAX_LINES]
    hidden = [method for method in dict.fromkeys(runs["method"]) if method not in shown]
    runs = runs[runs["method"].isin(shown)].reset_index(drop=True)
    dataset, labels = runs.loc[0, "dataset"], int(runs.loc[0, "labels"])
    points, unread = read_points(runs, metric)
    order = domains_of(dataset)
    targets = sorted(set(points["target"]), key=lambda name: (order.index(name) if name in order else 0, name))
    table, left_out = average(points, targets)
    panels = [*targets, MEAN] if MEAN in set(table["target"]) else targets
    suffix = "" if metric.name == DEFAULT_METRIC else f"_{metric.name.replace('/', '_')}"
    name = f"curves_{dataset.replace(' ', '_')}_{labels}lpc{suffix}"
    with style.look():
        written = style.save(draw(table, panels, metric), out, name)
    table = table.assign(method=table["method"].map(lambda method: method.name)).rename(columns={"n": "seeds"})
    table = table[["method", "target", "epoch", "mean", "std", "seeds"]]
    written.append(style.save_numbers(table, out, name))
    last = table[table["target"] == panels[-1]].groupby("method", sort=False).tail(1)
    body = last.to_string(index=False, float_format=lambda value: f"{value:.{metric.decimals}f}")
    heading = f"{metric.axis}, {setting_title(dataset, labels)}, last epoch"
    names = ",".join(method.name for method in hidden)
    more = [f"Not drawn, because more than {MAX_LINES} lines are hard to tell apart (--methods chooses): {names}"]
    notes = [*outdated, *unread, *left_out, *(more if hidden else [])]
    return "\n".join([heading, body, *notes, *style.wrote(written)])
