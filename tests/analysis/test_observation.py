"""The observation table and histogram, from runs and from a config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from semilearn_ext.__main__ import parser
from semilearn_ext.analysis import observation
from semilearn_ext.analysis.load_model import load_model
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.analysis.observation import Observed, candidate_counts, observe
from semilearn_ext.errors import UserError
from tests.analysis.conftest import TrainRun
from tests.conftest import ROOT

Analyse = Callable[..., None]


@pytest.fixture
def analyse(tmp_path: Path) -> Analyse:
    def run(*words: object) -> None:
        arguments = parser().parse_args(["analyse", *map(str, words), "--out", str(tmp_path / "figures")])
        arguments.call(arguments)

    return run


def test_rates_are_those_of_the_last_evaluation(pair: tuple[FinishedRun, FinishedRun]) -> None:
    observed = observe(load_model(pair[0]))
    last = pair[0].folder.read_metrics()[-1]
    assert 0 < observed.uus_rate < 1
    assert observed.uus_rate == pytest.approx(last["unlabeled/uus_rate"])
    assert observed.inclusion_rate == pytest.approx(last["unlabeled/inclusion_rate"])
    mean = (observed.candidates * np.arange(11)).sum() / observed.candidates.sum()
    assert mean == pytest.approx(last["unlabeled/candidates"])


def test_candidates_are_counted_as_in_a_plain_loop() -> None:
    prob = torch.rand(200, 5, generator=torch.Generator().manual_seed(0)).softmax(1)
    unconfident = prob.max(1).values < 0.27
    expected = [0] * 6
    for row, is_unconfident in zip(prob.tolist(), unconfident.tolist(), strict=True):
        if is_unconfident:
            expected[sum(value > 0.2 for value in row)] += 1
    assert 0 < sum(expected) < 200
    assert candidate_counts(prob, unconfident).tolist() == expected


def observed(target: str, seed: int, uus: float, inclusion: float | None, *candidates: int) -> Observed:
    return Observed(target, seed, 3, uus, inclusion, np.array(candidates))


def test_the_table_has_targets_their_mean_and_the_papers_numbers() -> None:
    runs = [
        *(observed("a", 1, 0.2, 0.6), observed("b", 1, 0.5, None)),
        *(observed("a", 2, 0.4, 0.8), observed("b", 2, 0.6, 0.9)),
        observed("a", 3, 0.9, 0.1),
    ]
    table = observation.observation_table(runs, observation.paper_rates("pacs")).set_index("target")
    assert list(table.index) == ["a", "b", "mean", "paper"]
    # Seed 3 lacks a target; seed 1 has no unconfident images on b, and so no inclusion rate there.
    assert table["uus_rate"].tolist() == pytest.approx([0.5, 0.55, (0.35 + 0.5) / 2, 0.22])
    assert table["inclusion_rate"].tolist() == pytest.approx([0.5, 0.9, 0.85, 0.7])
    assert observation.paper_rates("digits_mini") is None


def test_the_histogram_has_shares_by_target() -> None:
    table = observation.histogram_table([observed("a", 1, 0, 0, 0, 1, 2), observed("a", 2, 0, 0, 0, 5, 0)])
    assert table["share"].tolist() == pytest.approx([6 / 8, 2 / 8])
    assert table["candidates"].tolist() == [1, 2]


def test_a_config_is_trained_once_for_every_target(
    analyse: Analyse, cache_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ("--cache_dir", cache_dir, "--save_dir", tmp_path / "runs", "--device", "cpu", "--progress", "false")
    quick = ("--batch_size", 6, "--labels_per_class", 5, "--num_train_iter", 2, "--num_eval_iter", 2)
    config = ("--c", ROOT / "config/ssdg/fixmatch_digits_mini.yaml", "--p_cutoff", 0.12)
    analyse("observation", *config, *flags, *quick)
    results = sorted((tmp_path / "runs_observation").rglob("result.json"))
    assert len(results) == 4
    assert not (tmp_path / "runs").exists(), "tables and curves would find them there"
    times = [path.stat().st_mtime_ns for path in results]
    output = capsys.readouterr().out
    table = pd.read_csv(tmp_path / "figures" / "observation_digits_mini.csv")
    assert table["target"].tolist() == ["pen", "texture", "street", "print", "mean"]
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".pdf", ".csv"}
    analyse("observation", *[path.parent for path in results])
    assert capsys.readouterr().out.splitlines()[-4:] == output.splitlines()[-4:]
    assert [path.stat().st_mtime_ns for path in results] == times


def test_invalid_requests_are_refused(
    analyse: Analyse, train_run: TrainRun, pair: tuple[FinishedRun, FinishedRun]
) -> None:
    with pytest.raises(UserError, match="pass either --c FILE"):
        analyse("observation")
    with pytest.raises(UserError, match="--epoch needs --c FILE"):
        analyse("observation", pair[0].path, "--epoch", "3")
    with pytest.raises(UserError, match="belong to different experiments; pass runs of one method"):
        analyse("observation", pair[0].path, pair[1].path)
    with pytest.raises(UserError, match="supervised has no confidence threshold"):
        analyse("observation", train_run(algorithm="supervised").path)
