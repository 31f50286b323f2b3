"""The mean over targets and complete seeds, compared with values computed by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from semilearn_ext.report.aggregate import incomplete_seeds, on_common_epochs, over_seeds, seed_means

TARGETS = {"d": ("a", "b")}
BY = ["dataset", "method"]


@pytest.fixture
def runs() -> pd.DataFrame:
    rows = [
        ("d", "x", "a", 1, 10.0),
        ("d", "x", "b", 1, 20.0),
        ("d", "x", "a", 2, 30.0),
        ("d", "x", "b", 2, 50.0),
        ("d", "x", "a", 3, 99.0),
        ("d", "y", "b", 1, 7.0),
    ]
    return pd.DataFrame(rows, columns=["dataset", "method", "target", "seed", "value"])


def test_only_complete_seeds_are_averaged(runs: pd.DataFrame) -> None:
    means = seed_means(runs, TARGETS, BY)
    assert means.to_numpy().tolist() == [["d", "x", 1, 15.0], ["d", "x", 2, 40.0]]
    table = over_seeds(means, BY)
    assert table.loc[0, ["mean", "n"]].tolist() == [27.5, 2]
    assert table.loc[0, "std"] == pytest.approx(np.std([15, 40], ddof=1))


def test_missing_targets_are_listed(runs: pd.DataFrame) -> None:
    missing = incomplete_seeds(runs, TARGETS, BY)
    assert missing.to_numpy().tolist() == [["d", "x", 3, ("b",)], ["d", "y", 1, ("a",)]]


def test_runs_with_other_epochs_are_interpolated() -> None:
    rows = [("d", "a", 1, epoch, 10.0 * epoch) for epoch in (1, 2, 3)]
    rows += [("d", "b", 1, epoch, 20.0 * epoch) for epoch in (1.5, 4)]
    frame = pd.DataFrame(rows, columns=["dataset", "target", "seed", "epoch", "value"])
    common = on_common_epochs(frame, ["dataset"], ["value"])
    assert common[["target", "epoch", "value"]].to_numpy().tolist() == [
        ["a", 2.0, 20.0],
        ["a", 3.0, 30.0],
        ["b", 2.0, 40.0],
        ["b", 3.0, 60.0],
    ]


def test_runs_with_the_same_epochs_are_not_changed() -> None:
    rows = [("d", target, 1, epoch, 1.0) for target in "ab" for epoch in (1, 2)]
    frame = pd.DataFrame(rows, columns=["dataset", "target", "seed", "epoch", "value"])
    pd.testing.assert_frame_equal(on_common_epochs(frame, ["dataset"], ["value"]), frame)
