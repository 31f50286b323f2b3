"""Average runs: the mean over the targets of each seed, then mean and standard deviation over seeds.

Only complete seeds, which have a run on every target, are used: means over different targets are not comparable. All
tables, statistics, curves and summaries use these functions. A frame of runs has the columns ``dataset``, ``target``
and ``seed``, the columns ``by`` that identify a group, and the values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from semilearn_ext.report.methods import domains_of
from semilearn_ext.report.run_groups import GROUP

Targets = Mapping[str, Sequence[str]]
"""The targets of a complete seed, by dataset."""


def all_targets(runs: pd.DataFrame, unfinished: pd.DataFrame) -> Targets:
    """All domains of a dataset; for a user's own data, all targets of finished and unfinished runs."""
    pairs = pd.concat([runs[["dataset", "target"]], unfinished[["dataset", "target"]]])
    return {
        dataset: domains_of(dataset) or tuple(sorted(set(targets)))
        for dataset, targets in pairs.groupby("dataset")["target"]
    }


def is_complete(runs: pd.DataFrame, targets: Targets, by: Sequence[str] = GROUP) -> pd.Series:
    """Whether the seed of a row has a run on every target, for every row."""
    count = runs.groupby([*by, "seed"], sort=False)["target"].transform("nunique")
    return count == runs["dataset"].map({dataset: len(names) for dataset, names in targets.items()})


def seed_means(
    runs: pd.DataFrame, targets: Targets, by: Sequence[str] = GROUP, values: Sequence[str] = ("value",)
) -> pd.DataFrame:
    """One row per group and complete seed: the mean of ``values`` over its targets."""
    complete = runs[is_complete(runs, targets, by)]
    return complete.groupby([*by, "seed"], sort=False)[list(values)].mean().reset_index()


def over_seeds(means: pd.DataFrame, by: Sequence[str] = GROUP, value: str = "value") -> pd.DataFrame:
    """One row per group: ``mean``, ``std`` (ddof 1, NaN for one seed) and ``n`` over its rows."""
    return means.groupby(list(by), sort=False)[value].agg(mean="mean", std="std", n="count").reset_index()


def over_targets_and_seeds(runs: pd.DataFrame, targets: Targets, by: Sequence[str] = GROUP) -> pd.DataFrame:
    """One row per group: ``mean``, ``std`` and ``n`` over its complete seeds; ``n`` is 0 if there are none."""
    averages = over_seeds(seed_means(runs, targets, by), by)
    cells = runs[list(by)].drop_duplicates().merge(averages, on=list(by), how="left")
    return cells.assign(n=cells["n"].fillna(0).astype(int))


def by_target(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per group and target: ``mean``, ``std`` and ``n`` over all seeds that were run on it."""
    return over_seeds(runs, [*GROUP, "target"])


def incomplete_seeds(runs: pd.DataFrame, targets: Targets, by: Sequence[str] = GROUP) -> pd.DataFrame:
    """One row per group and incomplete seed, with its ``missing`` targets."""
    rows = []
    for key, rows_of_seed in runs[~is_complete(runs, targets, by)].groupby([*by, "seed"], sort=False):
        present = set(rows_of_seed["target"])
        expected = targets[rows_of_seed["dataset"].iloc[0]]
        rows.append((*key, tuple(target for target in expected if target not in present)))
    return pd.DataFrame(rows, columns=[*by, "seed", "missing"])


def on_common_epochs(evaluations: pd.DataFrame, by: Sequence[str], values: Sequence[str]) -> pd.DataFrame:
    """``evaluations`` (one row per run and ``epoch``) with the same epochs for all runs of a group.

    Runs that were evaluated at other epochs are interpolated linearly, within the range that all runs of the group
    share.
    """
    parts = []
    for _, group in evaluations.groupby(list(by), sort=False):
        count = len(group.drop_duplicates(["target", "seed"]))
        if (group["epoch"].value_counts() == count).all():
            parts.append(group)
            continue
        runs = [run for _, run in group.groupby(["target", "seed"], sort=False)]
        epochs = [run["epoch"].to_numpy() for run in runs]
        longest = max(epochs, key=len)
        first, last = max(other[0] for other in epochs), min(other[-1] for other in epochs)
        grid = longest[(first <= longest) & (longest <= last)]
        parts += [_interpolated(run, grid, values) for run in runs]
    return pd.concat(parts, ignore_index=True) if parts else evaluations


def _interpolated(run: pd.DataFrame, epochs: np.ndarray, values: Sequence[str]) -> pd.DataFrame:
    columns = {name: np.interp(epochs, run["epoch"], run[name]) for name in values}
    about = {name: run[name].iloc[0] for name in run.columns if name not in (*values, "epoch")}
    return pd.DataFrame({"epoch": epochs, **columns}).assign(**about)
