"""Runs of one name but not of one experiment are shown apart, with what differs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.report.build import Report, build
from semilearn_ext.report.layout import DASH

Whole = Callable[..., None]


def summary(root: Path) -> tuple[Report, dict[str, str]]:
    made = build([root], ["summary"], (), "last")
    return made, {row[0].text: row[1].text for row in made.tables[0].panels[0].rows}


def test_config_hashes(whole: Whole, tmp_path: Path) -> None:
    whole(70, seeds=(1, 2), config_hash="aaa", config={"lr": 0.03})
    whole(80, seeds=(3, 4), config_hash="bbb", config={"lr": 0.3})
    made, rows = summary(tmp_path / "runs")
    assert rows == {"FixMatch [lr 0.03]": "71.5 ± 0.7 [n=2]", "FixMatch [lr 0.3]": "83.5 ± 0.7 [n=2]"}
    assert made.warnings == [
        "FixMatch on digits_mini, 10 labels a class: 2 kinds of runs, shown apart: lr 0.03 | lr 0.3",
    ]


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("version", ("0.1.0", "0.2.0"), ("version 0.1.0", "version 0.2.0")),
        ("scale", ("paper", "reduced"), ("paper scale", "reduced scale")),
        # The settings that are shown do not differ: the file behind pretrain_path did.
        ("config_hash", ("aaa", "bbb"), ("config aaa", "config bbb")),
    ],
)
def test_what_else_may_differ(
    whole: Whole, tmp_path: Path, field: str, values: tuple[str, str], words: tuple[str, str]
) -> None:
    whole(70, seeds=(1, 2), **{field: values[0]})
    whole(80, seeds=(3,), **{field: values[1]})
    _, rows = summary(tmp_path / "runs")
    assert rows == {f"FixMatch [{words[0]}]": "71.5 ± 0.7 [n=2]", f"FixMatch [{words[1]}]": "83.0 [n=1]"}


def test_supervised_and_erm_are_two_kinds_of_one_method(whole: Whole, tmp_path: Path) -> None:
    whole(70, seeds=(1,), algorithm="supervised")
    whole(80, seeds=(1,), algorithm="erm")
    _, rows = summary(tmp_path / "runs")
    assert rows == {"ERM [algorithm erm]": "81.0 [n=1]", "ERM [algorithm supervised]": "71.0 [n=1]"}


def test_the_base_with_the_same_settings_is_taken(whole: Whole, tmp_path: Path) -> None:
    whole(70, config_hash="aaa", seeds=(1, 2), config={"lr": 0.03})
    whole(60, config_hash="bbb", seeds=(3, 4), config={"lr": 0.3})
    whole(75, algorithm="fixmatch_upcsc", seeds=(1, 2), config={"lr": 0.03})
    _, rows = summary(tmp_path / "runs")
    assert rows["FixMatch + UPCSC"] == "76.5 ± 0.7 (+5.0) [n=2]"


def test_no_base_is_taken_when_none_has_the_same_settings(whole: Whole, tmp_path: Path) -> None:
    whole(70, config_hash="aaa", seeds=(1, 2), config={"lr": 0.03})
    whole(60, config_hash="bbb", seeds=(3, 4), config={"lr": 0.3})
    whole(75, algorithm="fixmatch_upcsc", seeds=(1, 2), config={"lr": 3.0})
    made, rows = summary(tmp_path / "runs")
    assert rows["FixMatch + UPCSC"] == "76.5 ± 0.7 [n=2]"
    assert any("several kinds of FixMatch, none chosen" in note for note in made.tables[0].notes)


def test_a_method_that_differs_from_its_base_in_more_is_marked(whole: Whole, tmp_path: Path) -> None:
    whole(70, config={"lr": 0.03, "clip_grad": 1.0})
    config = {"lr": 0.3, "clip_grad": None, "upc_weight": 1.0}
    whole(75, algorithm="fixmatch_upcsc", config=config, version="0.2.0")
    made, _ = summary(tmp_path / "runs")
    differ = "lr 0.3 against 0.03; clip_grad not set against 1.0; version 0.2.0 against 0.1.0"
    assert any(f"differs from its base in more than the method: {differ}" in note for note in made.tables[0].notes)


def test_a_config_that_cannot_be_read(run: Callable[..., Path], tmp_path: Path) -> None:
    path = run(70)
    (path / "config.yaml").write_text("a: [1")
    made, rows = summary(tmp_path / "runs")
    assert rows == {"FixMatch": f"{DASH} [n=0]"}
    assert len(made.warnings) == 1
    assert "config.yaml: not valid YAML" in made.warnings[0]
