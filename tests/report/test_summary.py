"""The table that a training command prints at the end."""

from __future__ import annotations

import pytest

from semilearn_ext.report.summary import by_target, render


def result(target: str, last: float) -> dict[str, object]:
    return {
        "dataset": "d",
        "labels_per_class": 10,
        "title": "A",
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


def test_averaged_weights_have_columns_if_all_runs_have_them() -> None:
    results = [result("x", 0.6), result("y", 0.7)]
    assert "ema, swa" not in render(results)
    for entry, share in zip(results, (0.8, 0.6), strict=True):
        entry["top1"] = {**entry["top1"], "ema": share}  # type: ignore[dict-item]
    results[0]["top1"] = {**results[0]["top1"], "swa": 0.5}  # type: ignore[dict-item]
    frame = by_target(results)
    assert list(frame.columns) == ["last", "source_val", "oracle", "ema", "seconds"]
    assert frame.loc["mean", "ema"] == pytest.approx(70)
    assert "ema, swa: averaged weights" in render(results)


def test_the_text_explains_the_columns() -> None:
    text = render([result("x", 0.6), result("y", 0.7)])
    for words in ("seed 1 (one seed)", "scale: reduced", "oracle*", "is an upper bound and not a result"):
        assert words in text
