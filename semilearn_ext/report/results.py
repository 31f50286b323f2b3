"""The input of all tables: the runs, and one row per group of runs that are averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.aggregate import Targets, over_targets_and_seeds
from semilearn_ext.report.baselines import with_change
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.run_groups import GROUP, Config

PROTOCOL_TITLES = {
    "last": "after the last iteration (protocol last, as in the paper)",
    "source_val": "at the evaluation that is best on held-out source images (protocol source_val)",
    "oracle": "at the evaluation that is best on the target domain itself (protocol oracle): an upper bound, never a "
    "result",
    "ema": "of the exponential moving average of the weights after the last iteration (protocol ema)",
    "swa": "of the uniform average of the weights over the end of training, with batch-norm statistics re-estimated on "
    "source images (protocol swa)",
}
_HEADINGS = {"oracle": "upper bound (oracle)", "ema": "accuracy (EMA weights)", "swa": "accuracy (SWA weights)"}


@dataclass(frozen=True)
class Results:
    """The numbers of one metric."""

    runs: pd.DataFrame
    """One row per finished run: its group, target, seed and ``value``, in percent if the metric is a share."""
    cells: pd.DataFrame
    """One row per group, see :func:`make_cells`."""
    evaluations: pd.DataFrame
    targets: Targets
    configs: Mapping[str, Config]
    """The scientific settings by config hash."""
    protocol: str
    metric: Metric
    with_paper: bool
    """Whether these numbers can be compared with those of the paper."""

    @property
    def quantity(self) -> str:
        """A heading for the values."""
        return _HEADINGS.get(self.protocol, self.metric.quantity)

    def what(self) -> str:
        """The metric, the evaluation and the unit, for the start of a caption."""
        title = f"{self.metric.title[0].upper()}{self.metric.title[1:]}"
        unit = " in percent" if self.metric.is_share else ""
        if self.metric.is_target_accuracy:
            return f"{title}{unit}, {PROTOCOL_TITLES[self.protocol]}"
        name = "" if title.lower() == self.metric.name else f" ({self.metric.name})"
        return f"{title}{name}{unit}, at the last evaluation"

    def titled(self, title: str) -> str:
        """``title``, with the metric unless it is the default."""
        return title if self.metric.is_target_accuracy else f"{title}: {self.metric.title}"


def make_results(
    runs: pd.DataFrame,
    evaluations: pd.DataFrame,
    targets: Targets,
    configs: Mapping[str, Config],
    protocol: str,
    metric: Metric,
) -> Results:
    with_paper = metric.is_target_accuracy and protocol == "last"
    cells = make_cells(runs, targets, configs, with_paper)
    return Results(runs, cells, evaluations, targets, configs, protocol, metric, with_paper)


def make_cells(runs: pd.DataFrame, targets: Targets, configs: Mapping[str, Config], with_paper: bool) -> pd.DataFrame:
    """One row per group with everything that tables show.

    ``mean``, ``std``, ``n``; ``change`` from the baseline; ``paper_mean``, ``paper_std`` and ``difference`` (ours minus
    the paper's); the number of ``runs`` and ``seconds`` per run; ``scale``, ``version``, ``config_hash``; ``notes``.
    """
    about = runs.groupby(GROUP, sort=False).agg(
        runs=("seed", "size"),
        seconds=("seconds", "mean"),
        scale=("scale", "first"),
        version=("version", "first"),
        config_hash=("config_hash", "first"),
    )
    cells = over_targets_and_seeds(runs, targets).merge(about.reset_index(), on=GROUP)
    cells = with_change(cells, runs, targets, configs)
    paper = paper_numbers.accuracy()
    cells = cells.merge(paper if with_paper else paper.iloc[:0], on=paper_numbers.KEY, how="left")
    cells["difference"] = cells["mean"] - cells["paper_mean"]
    return cells.sort_values(GROUP, key=sort_key, ignore_index=True)


def sort_key(column: pd.Series) -> pd.Series:
    """Sort datasets and methods in the order of the paper, followed by others by name, and label counts descending."""
    if column.name == "labels":
        return -column
    if column.name == "setup":
        return column
    order = paper_numbers.dataset_order() if column.name == "dataset" else paper_numbers.method_order()
    places = {name: place for place, name in enumerate([*order, *sorted(set(column) - set(order))])}
    return column.map(places)
