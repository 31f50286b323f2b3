"""A run's evaluations (``metrics.jsonl``) to curves over epochs and to the paper's observation."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from semilearn_ext.report.frames import Group, Targets, over_seeds, seed_means
from semilearn_ext.report.kinds import GROUP
from semilearn_ext.runs.folder import RunFolder

ACCURACIES = {
    "target/top1": "target domain",
    "unlabeled/top1": "unlabelled source images",
    "source_val/top1": "held-out source images",
}
ALWAYS = ("epoch", "target/top1", "source_val/top1")
"""What every evaluation has; ERM looks at no unlabelled image."""
RATES = {"unlabeled/uus_rate": "UUS rate", "unlabeled/inclusion_rate": "Inclusion rate"}
OBSERVED_EPOCH = 3.0
"""When the paper observed; an evaluation further than half an epoch from it is not one of epoch 3."""


class Curve(NamedTuple):
    """One group over epochs: of every accuracy that was measured the mean and the deviation (ddof 1) over seeds."""

    group: Group
    seeds: int
    epochs: list[float]
    mean: dict[str, list[float]]
    std: dict[str, list[float] | None]


def read_evaluations(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """A row an evaluation: the group, target and seed of its run, ``epoch``, accuracies and rates as shares."""
    rows: list[dict[str, Any]] = []
    bad = []
    for run in runs.itertuples():
        about = {name: getattr(run, name) for name in (*GROUP, "target", "seed")}
        measured = _read(RunFolder(run.path))
        if not measured:
            bad.append(run.path)
        rows += [{**about, **one} for one in measured]
    warnings = []
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        warnings.append(f"{bad[0] / 'metrics.jsonl'}{more}: missing, damaged or with NaN; not in curves")
    columns = [*GROUP, "target", "seed", "epoch", *ACCURACIES, *RATES]
    return pd.DataFrame(rows, columns=columns), warnings


def _read(folder: RunFolder) -> list[dict[str, float | None]]:
    """What is needed of every evaluation, or nothing when a line lacks what all have or holds a NaN."""
    try:
        records = folder.read_metrics()
        measured = [{name: record[name] for name in ALWAYS} for record in records]
        optional = [{name: record.get(name) for name in (*ACCURACIES, *RATES)} for record in records]
        whole = all(math.isfinite(value) for one in measured for value in one.values())
        whole &= all(math.isfinite(value) for one in optional for value in one.values() if value is not None)
    except (OSError, ValueError, KeyError, TypeError):
        return []
    if not whole:
        return []
    return [{**more, **one} for one, more in zip(measured, optional, strict=True)]


def curves(evaluations: pd.DataFrame, targets: Targets) -> list[Curve]:
    """A curve a group, over the seeds that have all targets.

    Runs that were not evaluated at the same epochs are read off between two evaluations, on the span all have.
    """
    found = []
    for key, same in evaluations.groupby(GROUP, sort=False):
        group = Group(*key)
        there = same.groupby("seed")["target"].nunique()
        whole = same[same["seed"].isin(there[there == len(targets[group.dataset])].index)]
        if not whole.empty:
            found.append(_curve(group, whole))
    return found


def _curve(group: Group, evaluations: pd.DataFrame) -> Curve:
    measured = evaluations.sort_values("epoch")[["seed", "target", "epoch", *ACCURACIES]]
    runs = {key: run.iloc[:, 2:].to_numpy(dtype=float) for key, run in measured.groupby(["seed", "target"])}
    first, last = max(run[0, 0] for run in runs.values()), min(run[-1, 0] for run in runs.values())
    grid = max(runs.values(), key=len)[:, 0]
    epochs = grid[(first <= grid) & (grid <= last)].tolist()
    seeds = [seed for seed, _ in runs]
    mean: dict[str, list[float]] = {}
    std: dict[str, list[float] | None] = {}
    for column, name in enumerate(ACCURACIES, start=1):
        read = np.array([np.interp(epochs, run[:, 0], 100 * run[:, column]) for run in runs.values()])
        if np.isnan(read).any():
            continue
        by_seed = pd.DataFrame(read, index=seeds).groupby(level=0).mean()
        mean[name] = by_seed.mean().round(3).tolist()
        std[name] = by_seed.std().round(3).tolist() if len(by_seed) > 1 else None
    return Curve(group, len(set(seeds)), epochs, mean, std)


def observed(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluation of each run that is nearest epoch 3: its group, target, seed, ``epoch`` and rates.

    Runs without one within half an epoch, or without unconfident images then, are left out.
    """
    away = (evaluations["epoch"] - OBSERVED_EPOCH).abs()
    near = evaluations.assign(away=away)[away <= 0.5].sort_values("away", kind="stable")
    nearest = near.drop_duplicates([*GROUP, "target", "seed"])
    return nearest.dropna(subset=list(RATES)).drop(columns="away")


def rates(observed_runs: pd.DataFrame, targets: Targets) -> pd.DataFrame:
    """A row a group and rate: ``mean``, ``std`` and ``n`` over seeds of the mean over targets."""
    tables = []
    for name in RATES:
        runs = observed_runs.assign(accuracy=observed_runs[name].astype(float))
        tables.append(over_seeds(seed_means(runs, targets)).assign(rate=name))
    return pd.concat(tables, ignore_index=True)
