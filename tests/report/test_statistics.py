"""Paired comparisons, compared with values computed by hand or by scipy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from semilearn_ext.report.build import build
from semilearn_ext.report.layout import DASH, Table
from semilearn_ext.report.statistics import compare, interval, sign_flip, smallest_exact_p, t_test


def table(root: Path, *compared: str) -> Table:
    built = build([root], [] if compared else ["statistics"], compared, "last")
    return built.tables[-1]


def test_the_comparison_equals_values_computed_by_hand(tree: Path) -> None:
    """Differences of the seeds: 0.75, 1.5, 2.25, 3, 3.75. Wins: texture 5, print 4; ties: street 5, print 1."""
    built = table(tree).data.iloc[0]
    assert (built["method"], built["against"], built["n"]) == ("fixmatch_upcsc", "fixmatch", 5)
    assert built["difference"] == pytest.approx(2.25)
    assert (built["wins"], built["ties"], built["pairs"], built["left_out"]) == (9, 6, 20, 0)
    # t = 2.25 / (1.185854 / sqrt 5) = 4.242641 with four degrees of freedom.
    assert built["t_test"] == pytest.approx(0.0132356, abs=1e-6)
    assert built["sign_flip"] == 0.0625
    assert 0.75 < built["low"] < 2.25 < built["high"] < 3.75


def test_printed_cells(tree: Path) -> None:
    built = table(tree)
    cells = [cell.text for cell in built.panels[0].rows[0]]
    assert cells[:2] == ["FixMatch + UPCSC against FixMatch", "+2.2"]
    assert cells[3:] == ["9 of 20, 6 ties", "0.0132", "0.0625", "5"]
    for words in ("scipy.stats.bootstrap", "scipy.stats.ttest_rel", "5 seeds: 0.0625", "paired by target and seed"):
        assert words in built.caption


def test_only_common_pairs_are_compared_and_the_others_are_noted(tree: Path) -> None:
    built = table(tree, "fixmatch", "freematch")
    row = built.data.iloc[0]
    # FreeMatch has seeds 1 and 2 complete, and seed 3 without print: 11 pairs; FixMatch has 9 more.
    assert (row["method"], row["against"]) == ("freematch", "fixmatch")
    assert (row["seeds"], row["pairs"], row["left_out"]) == ("1 2", 11, 9)
    assert row["difference"] == pytest.approx(((76 - 75.25) + (77 - 75.5)) / 2)
    assert row["wins"] == 2  # print; pen is always lower, the other two are equal
    assert "9 runs have no counterpart; all but the wins are over seeds 1, 2" in built.notes[0]


def test_no_complete_seed_in_common(run: Callable[..., Path], tmp_path: Path) -> None:
    run(70)
    run(75, base="fixmatch", plugins=("upcsc",))
    built = table(tmp_path / "runs")
    assert [cell.text for cell in built.panels[0].rows[0]][1:] == [DASH, DASH, "1 of 1", DASH, DASH, "0"]
    assert "no seed has all targets" in built.notes[-1]


def test_test_and_interval_equal_scipy() -> None:
    first, second = np.array([71.0, 74.5, 70.2, 77.7, 73.1]), np.array([70.1, 74.9, 68.0, 74.4, 72.0])
    difference = first - second
    assert t_test(first, second) == stats.ttest_rel(first, second).pvalue
    expected = stats.bootstrap((difference,), np.mean, method="percentile", rng=0, n_resamples=9999).confidence_interval
    assert interval(difference) == (expected.low, expected.high)
    assert interval(difference) == interval(difference)


def test_sign_flips_equal_an_enumeration() -> None:
    difference = np.array([0.9, -0.4, 2.2, 3.3, 1.1])
    means = [np.mean(signs * difference) for signs in product((1, -1), repeat=5)]
    extreme = np.mean([abs(mean) >= abs(difference.mean()) - 1e-12 for mean in means])
    assert sign_flip(difference) == pytest.approx(extreme)
    assert smallest_exact_p(5) == 0.0625


def test_constant_differences_have_no_t_test() -> None:
    seeds = [{"seed": seed, "target": "a", "value": 70.0 + seed} for seed in range(5)]
    runs = pd.DataFrame(seeds)
    comparison = compare(runs.assign(value=runs["value"] + 1), runs, ["a"])
    assert np.isnan(comparison.t_test)
    assert (comparison.difference, comparison.low, comparison.high, comparison.sign_flip) == (1.0, 1.0, 1.0, 0.0625)


def test_one_seed_has_no_test() -> None:
    run = pd.DataFrame([{"seed": 1, "target": "a", "value": 70.0}])
    comparison = compare(run.assign(value=71.0), run, ["a"])
    assert (comparison.difference, comparison.wins) == (1.0, 1)
    assert np.isnan([comparison.low, comparison.high, comparison.t_test, comparison.sign_flip]).all()
