"""Two methods on the same targets and seeds: differences, an interval and tests, by scipy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

NAN = float("nan")


class Comparison(NamedTuple):
    """``theirs`` taken from ``ours``, in percentage points. NaN where there are too few seeds."""

    seeds: tuple[int, ...]
    """Seeds that both have for every target; all but the wins are over these."""
    pairs: int
    """Targets and seeds that both have."""
    wins: int
    ties: int
    left_out: int
    """Runs of either that the other has no counterpart of."""
    difference: float
    low: float
    high: float
    t_test: float
    sign_flip: float


def compare(ours: pd.DataFrame, theirs: pd.DataFrame, targets: Sequence[str]) -> Comparison:
    """Pair two frames of runs (``target``, ``seed``, ``accuracy``) by target and seed."""
    pairs = ours.merge(theirs, on=["target", "seed"], suffixes=("_ours", "_theirs"))
    by_seed = pairs.groupby("seed")[["accuracy_ours", "accuracy_theirs"]]
    means = by_seed.mean()[by_seed.size() == len(targets)]
    gain = pairs["accuracy_ours"] - pairs["accuracy_theirs"]
    difference = (means["accuracy_ours"] - means["accuracy_theirs"]).to_numpy()
    low, high = interval(difference)
    return Comparison(
        seeds=tuple(int(seed) for seed in means.index),
        pairs=len(pairs),
        wins=int((gain > 0).sum()),
        ties=int((gain == 0).sum()),
        left_out=len(ours) + len(theirs) - 2 * len(pairs),
        difference=float(difference.mean()) if len(difference) else NAN,
        low=low,
        high=high,
        t_test=t_test(means["accuracy_ours"].to_numpy(), means["accuracy_theirs"].to_numpy()),
        sign_flip=sign_flip(difference),
    )


def interval(difference: np.ndarray[Any, Any]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over seeds: 9,999 resamples, always the same."""
    from scipy import stats

    if len(difference) < 2:
        return NAN, NAN
    found = stats.bootstrap((difference,), np.mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
    return float(found.low), float(found.high)


def t_test(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    """Two-sided p of the paired t test over seeds; NaN when the differences do not vary, where t has no meaning."""
    from scipy import stats

    if len(ours) < 2 or np.allclose(np.ptp(ours - theirs), 0):
        return NAN
    return float(stats.ttest_rel(ours, theirs).pvalue)


def sign_flip(difference: np.ndarray[Any, Any]) -> float:
    """Two-sided p of the sign-flip test over seeds: exact for up to 13 seeds, 9,999 random flips for more."""
    from scipy import stats

    if len(difference) < 2:
        return NAN
    test = stats.permutation_test((difference,), np.mean, permutation_type="samples", n_resamples=9999, rng=0)
    return float(test.pvalue)


def smallest_exact_p(seeds: int) -> float:
    """No exact two-sided test of so many paired seeds can give less: all signs alike, two ways of 2^n."""
    return 2 / 2**seeds
