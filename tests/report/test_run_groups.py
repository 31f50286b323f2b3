"""Runs of one method that belong to different experiments are shown separately, with their differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.report.build import Report, build
from semilearn_ext.report.layout import DASH

CompleteSeeds = Callable[..., None]


def summary(root: Path) -> tuple[Report, dict[str, str]]:
    built = build([root], ["summary"], (), "last")
    return built, {row[0].text: row[1].text for row in built.tables[0].panels[0].rows}


def test_runs_with_different_configs_are_separate(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1, 2), config_hash="aaa", config={"lr": 0.03})
    complete_seeds(80, seeds=(3, 4), config_hash="bbb", config={"lr": 0.3})
    built, rows = summary(tmp_path / "runs")
    assert rows == {"FixMatch [lr 0.03]": "71.5 ± 0.7 [n=2]", "FixMatch [lr 0.3]": "83.5 ± 0.7 [n=2]"}
    assert built.warnings == [
        "FixMatch on digits_mini, 10 labels per class: runs of 2 different experiments, shown separately: "
        "lr 0.03 | lr 0.3",
    ]


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("version", ("0.1.0", "0.2.0"), ("version 0.1.0", "version 0.2.0")),
        ("scale", ("paper", "reduced"), ("paper scale", "reduced scale")),
        # The shown settings are equal, but the content of the file in pretrain_path differed.
        ("config_hash", ("aaa", "bbb"), ("config aaa", "config bbb")),
    ],
)
def test_runs_with_other_differences_are_separate(
    complete_seeds: CompleteSeeds, tmp_path: Path, field: str, values: tuple[str, str], words: tuple[str, str]
) -> None:
    complete_seeds(70, seeds=(1, 2), **{field: values[0]})
    complete_seeds(80, seeds=(3,), **{field: values[1]})
    _, rows = summary(tmp_path / "runs")
    assert rows == {f"FixMatch [{words[0]}]": "71.5 ± 0.7 [n=2]", f"FixMatch [{words[1]}]": "83.0 [n=1]"}


def test_the_baseline_has_the_same_settings(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, config_hash="aaa", seeds=(1, 2), config={"lr": 0.03})
    complete_seeds(60, config_hash="bbb", seeds=(3, 4), config={"lr": 0.3})
    complete_seeds(75, base="fixmatch", plugins=("upcsc",), seeds=(1, 2), config={"lr": 0.03})
    _, rows = summary(tmp_path / "runs")
    assert rows["FixMatch + UPCSC"] == "76.5 ± 0.7 (+5.0) [n=2]"


def test_there_is_no_baseline_without_the_same_settings(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, config_hash="aaa", seeds=(1, 2), config={"lr": 0.03})
    complete_seeds(60, config_hash="bbb", seeds=(3, 4), config={"lr": 0.3})
    complete_seeds(75, base="fixmatch", plugins=("upcsc",), seeds=(1, 2), config={"lr": 3.0})
    built, rows = summary(tmp_path / "runs")
    assert rows["FixMatch + UPCSC"] == "76.5 ± 0.7 [n=2]"
    assert any("there are several experiments with FixMatch and none matches" in note for note in built.tables[0].notes)


def test_a_method_that_differs_from_its_base_in_more_is_marked(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, config={"lr": 0.03, "clip_grad": 1.0})
    config = {"lr": 0.3, "clip_grad": None, "upc_weight": 1.0}
    complete_seeds(75, base="fixmatch", plugins=("upcsc",), config=config, version="0.2.0")
    built, _ = summary(tmp_path / "runs")
    differ = "lr 0.3, not 0.03; clip_grad not set, not 1.0; version 0.2.0, not 0.1.0"
    assert any(f"differs from FixMatch in more than the method: {differ}" in note for note in built.tables[0].notes)


def test_an_invalid_config_is_named(run: Callable[..., Path], tmp_path: Path) -> None:
    path = run(70)
    (path / "config.yaml").write_text("a: [1")
    built, rows = summary(tmp_path / "runs")
    assert rows == {"FixMatch": f"{DASH} [n=0]"}
    assert len(built.warnings) == 1
    assert "config.yaml: not valid YAML" in built.warnings[0]
