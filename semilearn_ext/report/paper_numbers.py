"""The numbers printed in the paper: ``paper/accuracy.csv`` and ``paper/observation.csv``."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from semilearn_ext.report.methods import MethodId

_FOLDER = Path(__file__).parent / "paper"
KEY = ["dataset", "labels", "method"]


@functools.cache
def _as_printed() -> pd.DataFrame:
    frame = pd.read_csv(_FOLDER / "accuracy.csv", keep_default_na=False, na_values={"std": [""]})
    names = zip(frame["base"], frame["plugins"], frame["variant"], strict=True)
    frame["method"] = [MethodId(base, tuple(plugins.split()), variant) for base, plugins, variant in names]
    return frame.rename(columns={"labels_per_class": "labels"})


def accuracy() -> pd.DataFrame:
    """One row per benchmark, label count and method: ``paper_mean`` and, where printed, ``paper_std`` in percent.

    The paper prints some results in several tables. The first one, which has a standard deviation, is used.
    """
    frame = _as_printed().drop_duplicates(KEY).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return frame[[*KEY, "paper_mean", "paper_std"]]


@functools.cache
def _by_key() -> dict[tuple[str, int, MethodId], tuple[float, float]]:
    return {(row.dataset, row.labels, row.method): (row.paper_mean, row.paper_std) for row in accuracy().itertuples()}


def printed(dataset: str, labels: int, method: MethodId) -> tuple[float, float] | None:
    """The paper's mean and standard deviation (NaN if not printed), or None."""
    return _by_key().get((dataset, labels, method))


def methods_of(table: str) -> list[MethodId]:
    """The methods in the paper's ``table``, in its order."""
    frame = _as_printed()
    return list(dict.fromkeys(frame.loc[frame["table"] == table, "method"]))


def rows(dataset: str) -> list[tuple[int, MethodId]]:
    """Label count and method of every result for ``dataset`` in the paper, each once, with most labels first."""
    frame = _as_printed()
    printed = frame[frame["dataset"] == dataset]
    return sorted(dict.fromkeys(zip(printed["labels"], printed["method"], strict=True)), key=lambda row: -row[0])


def method_order() -> list[MethodId]:
    """All methods of the paper, in the order of its tables."""
    return list(dict.fromkeys(_as_printed()["method"]))


def dataset_order() -> list[str]:
    """The paper's benchmarks, in the order of its tables."""
    return list(dict.fromkeys(_as_printed()["dataset"]))


@functools.cache
def observation() -> pd.DataFrame:
    """By benchmark: the share of unconfident unlabelled images, and of those whose true class is a candidate."""
    return pd.read_csv(_FOLDER / "observation.csv", comment="#").set_index("dataset")
