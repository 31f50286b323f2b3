"""Compare two methods on the same targets and seeds: differences, confidence intervals and tests, with scipy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from semilearn_ext.report.aggregate import seed_means

NAN = float("nan")


class Comparison(NamedTuple):
    """The first method minus the second. NaN if there are too few seeds."""

    seeds: tuple[int, ...]
    """Seeds for which both have runs on every target. Everything except the wins is computed over these."""
    pairs: int
    """Number of combinations of target and seed that both have."""
    wins: int
    ties: int
    left_out: int
    """Number of runs of one method without a counterpart of the other."""
    difference: float
    low: float
    high: float
    t_test: float
    sign_flip: float


def compare(first: pd.DataFrame, second: pd.DataFrame, targets: Sequence[str]) -> Comparison:
    """Pair two frames of runs (``target``, ``seed``, ``value``) by target and seed."""
    pairs = first.merge(second, on=["target", "seed"], suffixes=("_first", "_second"))
    gain = pairs["value_first"] - pairs["value_second"]
    means = seed_means(pairs.assign(dataset=""), {"": targets}, ["dataset"], ["value_first", "value_second"])
    means = means.sort_values("seed")
    difference = (means["value_first"] - means["value_second"]).to_numpy()
    low, high = interval(difference)
    return Comparison(
        seeds=tuple(int(seed) for seed in means["seed"]),
        pairs=len(pairs),
        wins=int((gain > 0).sum()),
        ties=int((gain == 0).sum()),
        left_out=len(first) + len(second) - 2 * len(pairs),
        difference=float(difference.mean()) if len(difference) else NAN,
        low=low,
        high=high,
        t_test=t_test(means["value_first"].to_numpy(), means["value_second"].to_numpy()),
        sign_flip=sign_flip(difference),
    )


class Gain(NamedTuple):
    """The mean over targets of the first method minus the second, over all pairs of target and seed."""

    mean: float
    low: float
    high: float
    wins: int
    ties: int
    pairs: int
    seeds: int
    targets: int


def paired_gain(first: pd.DataFrame, second: pd.DataFrame) -> Gain:
    """Pair two frames of runs (``target``, ``seed``, ``value``) by target and seed.

    The interval is a 95 % percentile bootstrap, stratified by target: the seeds of every target are resampled (9,999
    times, with a fixed random state) and averaged over targets. NaN if a target has fewer than two seeds.
    """
    pairs = first.merge(second, on=["target", "seed"], suffixes=("_first", "_second"))
    gains = pairs.assign(gain=pairs["value_first"] - pairs["value_second"]).sort_values(["target", "seed"])
    strata = [rows["gain"].to_numpy() for _, rows in gains.groupby("target")]
    low, high = stratified_interval(strata)
    return Gain(
        mean=float(np.mean([gain.mean() for gain in strata])) if strata else NAN,
        low=low,
        high=high,
        wins=int((gains["gain"] > 0).sum()),
        ties=int((gains["gain"] == 0).sum()),
        pairs=len(gains),
        seeds=int(gains["seed"].nunique()),
        targets=len(strata),
    )


def stratified_interval(strata: Sequence[np.ndarray[Any, Any]]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of the means of ``strata``, which are resampled separately."""
    if not strata or min(map(len, strata)) < 2:
        return NAN, NAN
    generator = np.random.default_rng(0)
    draws = [values[generator.integers(len(values), size=(9999, len(values)))].mean(axis=1) for values in strata]
    low, high = np.percentile(np.mean(draws, axis=0), [2.5, 97.5])
    return float(low), float(high)


def interval(difference: np.ndarray[Any, Any]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean over seeds, with 9,999 resamples and a fixed random state."""
    from scipy import stats

    if len(difference) < 2:
        return NAN, NAN
    limits = stats.bootstrap((difference,), np.mean, method="percentile", n_resamples=9999, rng=0).confidence_interval
    return float(limits.low), float(limits.high)


def t_test(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """Two-sided p value of the paired t test over seeds; NaN if the differences do not vary (t is undefined)."""
    from scipy import stats

    if len(first) < 2 or np.allclose(np.ptp(first - second), 0):
        return NAN
    return float(stats.ttest_rel(first, second).pvalue)


def sign_flip(difference: np.ndarray[Any, Any]) -> float:
    """Two-sided p value of the sign-flip test over seeds: exact for up to 13 seeds, else with 9,999 random flips."""
    from scipy import stats

    if len(difference) < 2:
        return NAN
    test = stats.permutation_test((difference,), np.mean, permutation_type="samples", n_resamples=9999, rng=0)
    return float(test.pvalue)


def smallest_exact_p(seeds: int) -> float:
    """The smallest p value of an exact two-sided test over n paired seeds: 2 of the 2^n sign patterns are all equal."""
    return 2 / 2**seeds
