"""``ssdg select``: the grid, the ranking by source validation alone, and the winner's config."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from semilearn_ext.__main__ import main
from semilearn_ext.commands.select import grid_points, winner_config
from semilearn_ext.errors import UserError
from semilearn_ext.report.selection import SCORE, rank
from semilearn_ext.settings import load_settings, settings_from


def trials(scores: dict[str, list[tuple[str, int, float]]]) -> pd.DataFrame:
    rows = [(point, *row) for point, runs in scores.items() for row in runs]
    return pd.DataFrame(rows, columns=["point", "target", "seed", SCORE])


def test_ranking_is_the_mean_over_targets_then_seeds() -> None:
    ranking = rank(
        trials(
            {
                "a": [("x", 1, 0.5), ("y", 1, 0.7), ("x", 2, 0.6), ("y", 2, 0.6)],
                "b": [("x", 1, 0.9), ("y", 1, 0.7), ("x", 2, 0.5), ("y", 2, 0.7)],
            }
        ),
        ["x", "y"],
    )
    assert list(ranking["point"]) == ["b", "a"]
    assert list(ranking["mean"]) == pytest.approx([0.7, 0.6])
    assert list(ranking["behind"]) == pytest.approx([0.0, -0.1])
    assert (ranking["low"] <= ranking["mean"]).all()
    assert (ranking["mean"] <= ranking["high"]).all()


def test_an_incomplete_seed_does_not_count() -> None:
    ranking = rank(trials({"a": [("x", 1, 0.5), ("y", 1, 0.5), ("x", 2, 1.0)]}), ["x", "y"])
    assert ranking[["seeds", "mean"]].to_numpy().tolist() == [[1, 0.5]]


def test_ties_are_won_by_the_first_point_of_the_grid() -> None:
    runs = [("x", 1, 0.5)]
    assert rank(trials({"z": runs, "a": runs}), ["x"])["point"].iloc[0] == "z"


def test_a_grid_combines_its_settings() -> None:
    points = grid_points([("temperature", "1,0.2"), ("plugin_weight", "0.3,1")])
    assert [point["variant"] for point in points] == [
        "temperature_1_plugin_weight_0.3",
        "temperature_1_plugin_weight_1",
        "temperature_0.2_plugin_weight_0.3",
        "temperature_0.2_plugin_weight_1",
    ]


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ([("seed", "1,2")], "seed cannot be chosen by source validation"),
        ([("target_domain", "pen")], "target_domain cannot be chosen"),
        ([("lr", "1"), ("lr", "2")], "lr is given twice"),
        ([("lr", "1,,2")], "lr: expected different values"),
        ([("lr", "1,1")], "lr: expected different values"),
    ],
)
def test_invalid_grids_are_refused(grid: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        grid_points(grid)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ("temprature=1", "temprature: no such setting"),
        ("temperature=0", "temperature"),
        ("temperature=-1", "temperature"),
        ("temperature=nan", "temperature"),
        ("temperature=warm", "temperature"),
    ],
)
def test_invalid_values_in_a_grid_are_refused_before_any_run(tmp_path: Path, grid: str, message: str) -> None:
    words = ["select", "--c", "fixmatch_upcsc_digits_mini.yaml", "--grid", grid, "--dev_seeds", "11"]
    with pytest.raises(UserError, match=message):
        main([*words, "--save_dir", str(tmp_path / "runs")])
    assert not (tmp_path / "runs").exists()


def test_the_winner_has_the_value_that_was_trained() -> None:
    winner = settings_from(num_train_iter="010", optim="SGD", variant="num_train_iter_010")
    written = winner_config(Path("own.yaml"), winner, ["num_train_iter", "optim"])
    assert written == {
        "base": str(Path("own.yaml").resolve()),
        "optim": "SGD",
        "num_train_iter": 10,
        "variant": "num_train_iter_010",
    }


def test_a_selection_resumes_and_its_winner_trains(
    cache_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["select", "--c", "fixmatch_upcsc_digits_mini.yaml", "--grid", "lr=0.01,0.000001", "--dev_seeds", "11"]
    words += ["--target_domain", "pen", "--num_train_iter", "12", "--average", "none", "--device", "cpu"]
    words += ["--save_dir", str(tmp_path / "runs"), "--cache_dir", str(cache_dir), "--out", str(tmp_path)]
    main(words)
    assert "2 runs: 2 done" in capsys.readouterr().out
    main(words)
    assert "0 to run" in capsys.readouterr().out
    listing = pd.read_csv(tmp_path / "trials.csv")
    assert len(listing) == 2
    assert not [name for name in listing if "target/" in name]
    best = listing.sort_values(SCORE, ascending=False)["lr"].iloc[0]
    winner = load_settings(tmp_path / "selected.yaml", {})
    assert winner.lr == best
    assert (winner.algorithm, winner.dataset) == ("fixmatch_upcsc", "digits_mini")
