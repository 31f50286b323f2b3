"""The numbers that the paper prints, as data: ``paper/accuracy.csv`` and ``paper/observation.csv``."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

from semilearn_ext.report.names import canonical

_FOLDER = Path(__file__).parent / "paper"
KEY = ["dataset", "labels", "method"]


@functools.cache
def _as_printed() -> pd.DataFrame:
    frame = pd.read_csv(_FOLDER / "accuracy.csv").rename(columns={"labels_per_class": "labels"})
    return frame.assign(method=frame["method"].map(canonical))


def accuracy() -> pd.DataFrame:
    """A row a benchmark, label count and method: ``paper_mean`` and ``paper_std`` in percent, the latter where printed.

    The paper prints some results in several tables; the first counts, which is the one with a standard deviation.
    """
    frame = _as_printed().drop_duplicates(KEY).rename(columns={"mean": "paper_mean", "std": "paper_std"})
    return frame[[*KEY, "paper_mean", "paper_std"]]


def methods_of(table: str) -> list[str]:
    """The methods that the paper's ``table`` prints, in its order."""
    frame = _as_printed()
    return list(dict.fromkeys(frame.loc[frame["table"] == table, "method"]))


def method_order() -> list[str]:
    """All methods of the paper, in the order of its tables."""
    return list(dict.fromkeys(_as_printed()["method"]))


@functools.cache
def observation() -> pd.DataFrame:
    """By benchmark: the share of unconfident unlabelled images, and of those whose class is a candidate."""
    return pd.read_csv(_FOLDER / "observation.csv", comment="#").set_index("dataset")
