"""Our runs next to numbers of the released code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from semilearn_ext.__main__ import main
from semilearn_ext.errors import UserError
from semilearn_ext.report.build import build
from semilearn_ext.report.layout import DASH, MINUS
from semilearn_ext.report.released import parity_panel, pooled_test, read_numbers, released_table

PUBLISHED = Path(__file__).parents[2] / "results" / "pacs96" / "released_code.csv"


def test_mean_and_range_next_to_the_released_code(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed, accuracy in ((1, 55), (2, 56), (3, 60)):
        run(accuracy, dataset="pacs", target_domain="sketch", seed=seed)
        run(accuracy - 4, dataset="pacs", target_domain="sketch", seed=seed, plugins=["upcsc"])
    run(80, dataset="pacs", target_domain="art_painting", seed=1, plugins=["upcsc"])
    run(81, dataset="pacs", target_domain="art_painting", seed=2, plugins=["upcsc"])
    run(46, dataset="pacs", target_domain="art_painting")
    monkeypatch.chdir(tmp_path)
    words = ["tables", "runs", "--released", str(PUBLISHED), "--out", "out", "--tables", "gains,summary"]
    monkeypatch.setattr(sys, "argv", ["ssdg", *words])
    main(words)
    data = pd.read_csv("out/csv/released.csv", comment="#").set_index(["method", "target"])
    assert data.loc[("fixmatch", "sketch"), ["released", "mean", "low", "high"]].tolist() == pytest.approx(
        [57.2, 57, 55, 60]
    )
    text = (tmp_path / "out/tables.md").read_text()
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    assert [heading.split("`")[1] for heading in headings[:3]] == ["gains", "released", "summary"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert ["sketch", "FixMatch", "57.2", "57.0", "55.0 to 60.0", f"{MINUS}0.2", "yes", "1, 2, 3"] in rows
    assert ["sketch", "FixMatch + UPCSC", "55.0", "53.0", "51.0 to 56.0", f"{MINUS}2.0", "yes", "1, 2, 3"] in rows
    assert ["art_painting", "FixMatch", "49.6", "46.0", DASH, f"{MINUS}3.6", DASH, "1"] in rows
    assert ["art_painting", "FixMatch + UPCSC", "46.8", "80.5", "80.0 to 81.0", "+33.7", "no", "1, 2"] in rows
    assert "No runs of ours: fixmatch_upcsc--temperature_0.2 on sketch, " in text
    assert "Of the 3 numbers of the released code for which we have at least two runs, 2 are within our range." in text
    assert "1.3 are expected" in text  # 2 / 4 + 2 / 4 + 1 / 3
    assert "Further from our mean than our range is wide: FixMatch + UPCSC on art_painting." in text
    # Pooled variance: (14 + 14 + 0.5) / 5. Differences: 0.2, 2 and 33.7 points.
    assert "a standard deviation of 2.4 points (pooled, 5 degrees of freedom)" in text
    assert "expected to be 2.8 points; it is 19.5 (F test over the rows with a range: p below 0.01)." in text
    assert "released code (github.com/dongkwani/UPCSC), real PACS at 96 pixels, 3 epochs" in text


def test_the_pooled_test_finds_another_distribution_and_is_rarely_wrong() -> None:
    generator = np.random.default_rng(0)
    n = pd.Series([3, 3, 2, 5])
    p_values: dict[float, list[float]] = {0.0: [], 20.0: []}
    for shift, values in p_values.items():
        for _ in range(300):
            samples = [generator.normal(50, 4, size) for size in n]
            differences = pd.Series([runs.mean() - generator.normal(50 + shift, 4) for runs in samples])
            test = pooled_test(differences, pd.Series([runs.std(ddof=1) for runs in samples]), n)
            assert test is not None
            values.append(test.p)
    # For equal distributions, the p value is uniform: 60 +- 7 of 300 are below 0.2.
    assert 35 < sum(p < 0.2 for p in p_values[0.0]) < 85
    assert sum(p < 0.05 for p in p_values[20.0]) > 270
    assert pooled_test(pd.Series([1.0]), pd.Series([0.0]), pd.Series([3])) is None


def test_a_number_beside_the_range_is_not_within_it_and_one_seed_is_no_judgement(run: Callable[..., Path]) -> None:
    path = run(59, dataset="pacs", target_domain="sketch")
    runs = next(parent for parent in path.parents if parent.name == "runs")
    table = released_table(build([runs], (), (), "last").results, PUBLISHED)
    assert [row[6].value for row in table.panels[0].rows] == [DASH]
    assert table.notes[0].startswith("No row has two seeds yet")
    run(62, dataset="pacs", target_domain="sketch", seed=2)
    table = released_table(build([runs], (), (), "last").results, PUBLISHED)
    # 57.2 lies below 59 and 62, and 3.3 points from their mean, which is more than the 3 points between them.
    assert [row[6].value for row in table.panels[0].rows] == ["no"]
    assert "Further from our mean than our range is wide: FixMatch on sketch." in table.notes


def test_one_row_per_target_with_the_gain_of_both_codes(run: Callable[..., Path], tmp_path: Path) -> None:
    for seed in (1, 2):
        run(58 + seed, dataset="pacs", target_domain="sketch", seed=seed)
        run(57 + 2 * seed, dataset="pacs", target_domain="sketch", seed=seed, plugins=["upcsc"])
    run(43, dataset="pacs", target_domain="art_painting", plugins=["upcsc"])
    panel = parity_panel(build([tmp_path / "runs"], (), (), "last").results, PUBLISHED)
    assert [[cell.text for cell in row] for row in panel.rows] == [
        ["art_painting, FixMatch", "49.6", DASH, "46.8", "43.0 [n=1]", f"{MINUS}2.8", DASH],
        [
            "sketch, FixMatch",
            *("57.2", "59.5 (59.0 to 60.0) [n=2]", "55.0", "60.0 (59.0 to 61.0) [n=2]", f"{MINUS}2.2"),
            "+0.5 (+0.0 to +1.0)",
        ],
    ]


def test_invalid_requests_are_refused(run: Callable[..., Path], tmp_path: Path) -> None:
    run(50)
    results = build([tmp_path / "runs"], (), (), "last").results
    with pytest.raises(UserError, match="there are no runs of any of its methods and targets"):
        released_table(results, PUBLISHED)
    file = tmp_path / "numbers.csv"
    file.write_text("dataset,labels_per_class,accuracy\npacs,10,50\n")
    with pytest.raises(UserError, match="no column method, target"):
        read_numbers(file)
    file.write_text("dataset,labels_per_class,method,target,accuracy\npacs,ten,fixmatch,sketch,50\n")
    with pytest.raises(UserError, match="labels_per_class: expected a positive integer, got 'ten'"):
        read_numbers(file)
