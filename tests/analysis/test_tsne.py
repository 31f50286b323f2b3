"""t-SNE: the choice of images, the numbers below the panels, and the files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import silhouette_score

from semilearn_ext.__main__ import parser
from semilearn_ext.analysis.features import compute
from semilearn_ext.analysis.load_model import load_model
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.analysis.tsne import _rounded, domain_gap, embed, evenly_by_class


def test_a_subset_has_equally_many_images_per_class() -> None:
    labels = np.repeat([0, 1, 2, 3], [3, 50, 500, 40])
    chosen = evenly_by_class(labels, 63, seed=0)
    assert np.bincount(labels[chosen]).tolist() == [3, 20, 20, 20]
    assert len(np.unique(chosen)) == 63
    np.testing.assert_array_equal(chosen, evenly_by_class(labels, 63, seed=0))
    assert (chosen != evenly_by_class(labels, 63, seed=1)).any()
    np.testing.assert_array_equal(evenly_by_class(labels, 1000, seed=0), np.arange(593))


def test_the_gap_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(0)
    source, target = rng.normal(size=(7, 3)), rng.normal(1.0, 2.0, size=(5, 3))
    both = [*source, *target]
    squared = [((a - b) ** 2).sum() for i, a in enumerate(both) for b in both[i + 1 :]]
    width = np.median(squared)

    def mean_kernel(first: np.ndarray, second: np.ndarray, within: bool) -> float:
        pairs = [(i, j) for i in range(len(first)) for j in range(len(second)) if not (within and i == j)]
        return float(np.mean([np.exp(-((first[i] - second[j]) ** 2).sum() / width) for i, j in pairs]))

    expected = mean_kernel(source, source, True) + mean_kernel(target, target, True)
    expected -= 2 * mean_kernel(source, target, False)
    assert domain_gap(source, target) == pytest.approx(expected)


def test_the_gap_grows_with_the_shift_and_not_with_the_scale() -> None:
    rng = np.random.default_rng(0)
    source, other = rng.normal(size=(300, 20)), rng.normal(size=(200, 20))
    gaps = [domain_gap(source, other + shift) for shift in (0.0, 0.3, 1.0)]
    assert gaps == sorted(gaps)
    assert abs(gaps[0]) < 0.005
    assert domain_gap(100 * source, 100 * (other + 1)) == pytest.approx(gaps[2])


def test_an_embedding_is_the_same_every_time() -> None:
    feat = np.random.default_rng(0).normal(size=(80, 60)).astype(np.float32)
    np.testing.assert_array_equal(embed(feat, 0), embed(feat, 0))
    assert embed(feat[:4], 0).shape == (4, 2)


def test_negative_numbers_have_a_minus_sign_and_zero_has_none() -> None:
    assert [_rounded(value, 2) for value in (-0.123, -0.001, 0.5)] == ["−0.12", "0.00", "0.50"]  # noqa: RUF001


def test_figure_and_numbers_of_two_methods(
    pair: tuple[FinishedRun, FinishedRun], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["analyse", "tsne", "--limit", "60", "--out", str(tmp_path)]
    for run in pair:
        words += ["--run", str(run.path)]
    arguments = parser().parse_args(words)
    arguments.call(arguments)
    points = pd.read_csv(tmp_path / "tsne_digits_mini_pen.csv", dtype={"class": str})
    numbers = pd.read_csv(tmp_path / "tsne_digits_mini_pen_numbers.csv").set_index("method")
    assert list(numbers.index) == ["FixMatch", "FixMatch + UPCSC"]
    assert points.groupby(["method", "set"]).size().unique().tolist() == [60]
    assert points.groupby(["method", "set", "class"]).size().unique().tolist() == [6]
    assert f"Wrote {tmp_path / 'tsne_digits_mini_pen.pdf'}" in capsys.readouterr().out
    shown = points.query("method == 'FixMatch + UPCSC' and set == 'target'")
    loaded = load_model(pair[1])
    position = {item.name: number for number, item in enumerate(loaded.data.items)}
    outputs = compute(loaded, [position[name] for name in shown["image"]])
    expected = silhouette_score(outputs.feat, shown["class"])
    assert numbers.loc["FixMatch + UPCSC", "target"] == pytest.approx(expected, rel=1e-4)
