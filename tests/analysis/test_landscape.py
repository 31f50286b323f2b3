"""The loss landscape of two runs, computed by the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from semilearn_ext.__main__ import parser
from semilearn_ext.analysis.features import compute
from semilearn_ext.analysis.hessian import Eigenpairs
from semilearn_ext.analysis.landscape import Options, automatic_span, curvature, measure, source_loss, source_positions
from semilearn_ext.analysis.load_model import load_model
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.errors import UserError
from tests.analysis.conftest import TrainRun, content_of


def landscape(out: Path, runs: tuple[FinishedRun, ...], *more: str) -> None:
    words = ["analyse", "landscape", "--images", "15", "--points", "3", "--out", str(out), *more]
    arguments = parser().parse_args(words + [word for run in runs for word in ("--run", str(run.path))])
    arguments.call(arguments)


def test_the_centre_is_the_loss_of_the_trained_network(pair: tuple[FinishedRun, FinishedRun], tmp_path: Path) -> None:
    before = content_of(pair[0].path)
    landscape(tmp_path, pair, "--span", "0.3")
    grid = pd.read_csv(tmp_path / "landscape_digits_mini_pen.csv")
    values = pd.read_csv(tmp_path / "landscape_digits_mini_pen_eigenvalues.csv").set_index("method")
    assert list(values.index) == ["FixMatch", "FixMatch + UPCSC"]
    for run, name in zip(pair, values.index, strict=True):
        loaded = load_model(run)
        positions = source_positions(loaded, 15)
        logits = torch.from_numpy(compute(loaded, positions).logits)
        expected = float(F.cross_entropy(logits, loaded.data.labels[positions]))
        rows = grid.query(f"method == '{name}'")
        assert sorted(rows["epsilon1"].unique()) == [-0.3, 0, 0.3]
        centre = rows.query("epsilon1 == 0 and epsilon2 == 0")["loss"].item()
        assert centre == pytest.approx(expected, rel=1e-5)
        assert values.loc[name, "loss"] == centre
        assert values.loc[name, "lambda1"] >= values.loc[name, "lambda2"] > 0
        assert values.loc[name, "residual1"] < 0.01 * values.loc[name, "lambda1"]
    assert content_of(pair[0].path) == before
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".pdf", ".csv"}


def test_a_small_step_follows_the_eigenvalue(pair: tuple[FinishedRun, FinishedRun]) -> None:
    """L(a v) + L(-a v) - 2 L(0) = a² λ + O(a⁴) along both directions; the step is too small to cross a ReLU's kink."""
    loaded, options = load_model(pair[0]), Options(images=15, points=3, span=0)
    eigen, loss, step = curvature(loaded, "x", options), source_loss(loaded, options, torch.float64), 1e-6
    for value, vector in zip(eigen.values, eigen.vectors, strict=True):
        after, before, centre = (loss.at((along, loss.split(vector))) for along in (step, -step, 0.0))
        assert (after + before - 2 * centre) / step**2 == pytest.approx(value, rel=0.01)


def test_the_landscape_is_deterministic_and_does_not_change_the_model(pair: tuple[FinishedRun, FinishedRun]) -> None:
    loaded = load_model(pair[1])
    model = loaded.algorithm.model
    before = [value.clone() for value in (*model.parameters(), *model.buffers())]
    options = Options(images=10, points=3, span=0)
    first, second = (measure(loaded, "x", curvature(loaded, "x", options), 0.5, options) for _ in range(2))
    np.testing.assert_array_equal(first.loss, second.loss)
    np.testing.assert_array_equal(first.eigen.vectors, second.eigen.vectors)
    for value, old in zip((*model.parameters(), *model.buffers()), before, strict=True):
        assert torch.equal(value, old)
    assert first.eigen.vectors.shape[1] == sum(
        p.numel() for name, p in model.named_parameters() if not name.startswith("plugins")
    )


def test_single_precision_gives_the_same_eigenvalues_to_four_digits(pair: tuple[FinishedRun, FinishedRun]) -> None:
    loaded = load_model(pair[0])
    double, single = (curvature(loaded, "x", Options(10, 3, 0, float32=flag)) for flag in (False, True))
    np.testing.assert_allclose(single.values, double.values, rtol=1e-4)


def test_a_subset_represents_sets_domains_and_classes_in_proportion(pair: tuple[FinishedRun, FinishedRun]) -> None:
    data = load_model(pair[0]).data
    all_positions = source_positions(load_model(pair[0]), 0)
    assert all_positions == [*data.split.labelled, *data.split.unlabelled]
    chosen = np.array(source_positions(load_model(pair[0]), 400))
    assert len(np.unique(chosen)) == 400
    share = 400 / len(all_positions)
    assert np.isin(chosen, data.split.labelled).sum() == pytest.approx(share * len(data.split.labelled), abs=1)
    for numbers in (data.domains.numpy(), data.labels.numpy()):
        expected = share * np.bincount(numbers[all_positions])
        np.testing.assert_allclose(np.bincount(numbers[chosen]), expected, atol=6)


def test_the_span_follows_the_sharpest_method() -> None:
    def eigen(value: float) -> Eigenpairs:
        return Eigenpairs(np.array([value, 1.0]), np.empty((2, 0)), np.zeros(2), 0)

    assert automatic_span([eigen(25.0), eigen(10.0)]) == pytest.approx(0.6)
    assert automatic_span([eigen(10.0), eigen(4900.0)]) == pytest.approx(0.05)


def test_invalid_requests_are_refused(
    pair: tuple[FinishedRun, FinishedRun], train_run: TrainRun, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="must be odd, so that"):
        landscape(tmp_path, pair, "--points", "4")
    with pytest.raises(UserError, match="cannot be compared: the target domain differs"):
        landscape(tmp_path, (pair[0], train_run(target_domain="print")))
