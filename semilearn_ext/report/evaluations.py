"""All evaluations of the runs (``metrics.jsonl``), for curves over epochs and the rates of the paper's observation."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.aggregate import Targets, is_complete, on_common_epochs, over_seeds, seed_means
from semilearn_ext.report.metrics import NOT_METRICS, Metric
from semilearn_ext.report.record_files import Source, significant
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.runs.result import SOURCE_VAL, TARGET

ALWAYS = ["epoch", TARGET, SOURCE_VAL]
"""Numbers that every evaluation records; others are optional, such as those on unlabelled images."""
RATES = {"unlabeled/uus_rate": "UUS rate", "unlabeled/inclusion_rate": "Inclusion rate"}
OBSERVED_EPOCH = 3.0
"""The epoch at which the paper measured the rates. Evaluations more than half an epoch away are not used."""
_ABOUT = ["group", *GROUP, "target", "seed"]


class Curve(NamedTuple):
    """Mean and standard deviation (ddof 1) over seeds, per epoch, of every metric that all runs of a group have."""

    group: Group
    seeds: int
    epochs: list[float]
    mean: dict[str, list[float]]
    std: dict[str, list[float] | None]


def read_evaluations(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row per evaluation: the group, target and seed of its run, ``epoch``, and a column per recorded number.

    ``group`` is the number of the group. Missing numbers are NaN.
    """
    lines = [_read(source) for source in runs["source"]]
    run = np.repeat(np.arange(len(runs)), [len(records) for records in lines])
    values = _numbers([record for records in lines for record in records])
    damaged = values[ALWAYS].isna().any(axis=1).to_numpy()
    is_good = np.array([bool(records) for records in lines])
    is_good[run[damaged]] = False
    about = runs.assign(group=runs.groupby(GROUP, sort=False).ngroup())[_ABOUT].iloc[run].reset_index(drop=True)
    evaluations = pd.concat([about, values], axis=1)[is_good[run]].reset_index(drop=True)
    return evaluations, _warnings(list(runs.loc[~is_good, "path"]))


def _numbers(records: list[dict[str, Any]]) -> pd.DataFrame:
    """One row per record, with four significant digits as in records of runs; NaN instead of non-finite numbers.

    Numbers with the name of a column that identifies the run are left out.
    """
    values = pd.DataFrame(records).apply(pd.to_numeric, errors="coerce").replace([np.inf, -np.inf], np.nan)
    names = [name for name in values.columns if name not in (*NOT_METRICS, *_ABOUT)]
    return values.reindex(columns=list(dict.fromkeys([*ALWAYS, *RATES, *names]))).astype(float).map(significant)


def _read(source: Source) -> list[dict[str, Any]]:
    try:
        records = source.read_metrics()
    except UserError:
        return []
    return records if all(map(_is_sound, records)) else []


def _is_sound(record: Any) -> bool:
    """Whether all accuracies of an evaluation are between 0 and 1."""
    return isinstance(record, dict) and all(
        not isinstance(value, int | float) or (not value < 0 and not value > 1)
        for name, value in record.items()
        if _is_accuracy(name)
    )


@cache
def _is_accuracy(name: str) -> bool:
    return Metric(name).is_accuracy


def _warnings(bad: list[Any]) -> list[str]:
    if not bad:
        return []
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return [f"{bad[0]}{more}: its evaluations are missing, damaged or contain NaN; not in the curves"]


def metric_names(evaluations: pd.DataFrame) -> list[str]:
    """The recorded metrics, accuracies first, then sorted by name."""
    names = [name for name in evaluations.columns if name not in (*_ABOUT, "epoch") and evaluations[name].notna().any()]
    return sorted(names, key=lambda name: (name != TARGET, not name.endswith("/top1"), name))


def curves(evaluations: pd.DataFrame, targets: Targets) -> list[Curve]:
    """One curve per group that has a complete seed."""
    names, by = metric_names(evaluations), ["group", "epoch"]
    complete = evaluations[is_complete(evaluations, targets, ["group"])]
    if complete.empty:
        return []
    common = on_common_epochs(complete, ["group"], names)
    is_missing = common[names].isna().groupby(common["group"]).any()
    means = seed_means(common, targets, by, names)
    tables = {name: _scaled(over_seeds(means, by, name), Metric(name)) for name in names}
    groups = common.drop_duplicates("group").set_index("group")
    drawn = []
    for number, rows in tables[TARGET].groupby("group", sort=False).indices.items():
        seeds = int(tables[TARGET]["n"].to_numpy()[rows].max())
        measured = [name for name in names if not is_missing.loc[number, name]]
        mean = {name: tables[name]["mean"].to_numpy()[rows].tolist() for name in measured}
        std = {name: tables[name]["std"].to_numpy()[rows].tolist() if seeds > 1 else None for name in measured}
        epochs = tables[TARGET]["epoch"].to_numpy()[rows].tolist()
        drawn.append(Curve(Group.of(groups.loc[number]), seeds, epochs, mean, std))
    return drawn


def _scaled(table: pd.DataFrame, metric: Metric) -> pd.DataFrame:
    columns = {name: (metric.factor * table[name]).round(metric.decimals + 2) for name in ("mean", "std")}
    return table.assign(**columns)


def observed(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluation of each run that is closest to epoch 3, with its group, target, seed, ``epoch`` and rates.

    Runs without an evaluation within half an epoch, or without unconfident images, are left out.
    """
    distance = (evaluations["epoch"] - OBSERVED_EPOCH).abs()
    near = evaluations.assign(distance=distance)[distance <= 0.5].sort_values("distance", kind="stable")
    nearest = near.drop_duplicates([*GROUP, "target", "seed"])
    return nearest.dropna(subset=list(RATES)).drop(columns="distance")
