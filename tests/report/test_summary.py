"""The table a training command ends with."""

from __future__ import annotations

import pytest

from semilearn_ext.report.summary import by_target, render


def result(target: str, last: float) -> dict[str, object]:
    return {
        "dataset": "d",
        "labels_per_class": 10,
        "algorithm": "a",
        "target_domain": target,
        "seed": 1,
        "top1": {"last": last, "source_val": 0.5, "oracle": 0.9},
        "seconds": 2.0,
        "scale": "reduced",
    }


def test_mean_over_targets_and_sum_of_seconds() -> None:
    frame = by_target([result("x", 0.6), result("y", 0.7)])
    assert list(frame.index) == ["x", "y", "mean"]
    assert frame.loc["mean", "last"] == pytest.approx(65.0)
    assert frame.loc["mean", "seconds"] == 4.0


def test_one_target_has_no_mean() -> None:
    assert list(by_target([result("x", 0.6)]).index) == ["x"]


def test_the_text_says_what_it_is() -> None:
    text = render([result("x", 0.6), result("y", 0.7)])
    for words in ("seed 1 (one seed)", "scale: reduced", "oracle*", "an upper bound and no result"):
        assert words in text
