"""Any recorded number can be shown in tables; its title and format follow from its name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.report.build import TABLES, Report, build
from semilearn_ext.report.evaluations import curves
from semilearn_ext.report.metrics import Metric

CompleteSeeds = Callable[..., None]


def report(root: Path, metric: str, *names: str) -> Report:
    return build([root], names or TABLES, (), "last", Metric(metric))


@pytest.mark.parametrize(
    ("name", "title", "axis"),
    [
        ("target/top1", "accuracy on the target domain", "accuracy on the target domain (%)"),
        ("unlabeled/keep_rate", "keep rate on unlabelled source images", "keep rate on unlabelled source images (%)"),
        ("source_val/loss", "loss on held-out source images", "loss on held-out source images"),
        (
            "target/top1.ema",
            "accuracy of the EMA weights on the target domain",
            "accuracy of the EMA weights on the target domain (%)",
        ),
        (
            "target/ece",
            "expected calibration error on the target domain",
            "expected calibration error on the target domain (%)",
        ),
        ("train/util_ratio", "util ratio on training batches", "util ratio on training batches (%)"),
        ("train/upc", "UPC on training batches", "UPC on training batches"),
        ("lr/backbone", "lr/backbone", "lr/backbone"),
    ],
)
def test_titles_of_metrics(name: str, title: str, axis: str) -> None:
    assert (Metric(name).title, Metric(name).axis) == (title, axis)


def test_a_share_is_printed_in_percent(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1, 2), more={"unlabeled/keep_rate": 0.25})
    complete_seeds(70, seeds=(1, 2), plugins=("upcsc",), more={"unlabeled/keep_rate": 0.5})
    table = report(tmp_path / "runs", "unlabeled/keep_rate", "summary").tables[0]
    rows = {row[0].text: row[1] for row in table.panels[0].rows}
    assert {name: cell.text for name, cell in rows.items()} == {
        "FixMatch": "25.0 ± 0.0 [n=2]",
        "FixMatch + UPCSC": "50.0 ± 0.0 (+25.0) [n=2]",
    }
    assert table.title == "All runs: keep rate on unlabelled source images"
    assert table.caption.startswith("Keep rate on unlabelled source images (unlabeled/keep_rate) in percent, at the ")
    assert table.panels[0].columns[1].title == "keep rate"
    # A higher keep rate is not better, so no value is marked as best.
    assert not any(cell.bold for cell in rows.values())
    assert list(table.data["metric"]) == ["unlabeled/keep_rate"] * 2


def test_a_loss_is_not_printed_in_percent(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1, 2), dataset="pacs", more={"train/upc": 3.25})
    built = report(tmp_path / "runs", "train/upc", "summary", "by_target", "label_10")
    assert [table.panels[0].rows[0][1].text for table in built.tables[:2]] == ["3.250 ± 0.000 [n=2]"] * 2
    assert "percent" not in built.tables[0].caption
    # The paper printed accuracies, which are not shown next to a loss.
    assert [column.title for column in built.tables[2].panels[0].columns] == ["Method", "UPC"]


def test_every_table_supports_any_metric(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    for plugins in ((), ("upc",), ("upcsc",), ("dgwm",)):
        complete_seeds(70, dataset="pacs", plugins=plugins, more={"train/extra": 1.5})
    built = report(tmp_path / "runs", "train/extra")
    assert {"summary", "by_target", "statistics", "label_10", "plugins", "ablation"} <= {t.name for t in built.tables}
    statistics = next(table for table in built.tables if table.name == "statistics")
    assert statistics.panels[0].rows[0][1].text == "+0.000"
    assert "in which the first method is larger" in statistics.caption


def test_runs_without_the_metric_are_named(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1,), more={"train/upc": 2.0})
    complete_seeds(70, seeds=(1,), base="erm")
    built = report(tmp_path / "runs", "train/upc", "summary")
    assert [row[0].text for row in built.tables[0].panels[0].rows] == ["FixMatch"]
    assert "4 runs did not record train/upc; left out" in built.warnings


def test_an_unknown_metric_lists_the_recorded_ones(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1,), more={"train/upc": 2.0})
    with pytest.raises(UserError) as caught:
        report(tmp_path / "runs", "train/ucp")
    assert str(caught.value) == (
        "--metric: no run recorded 'train/ucp' (recorded: source_val/top1, target/top1, train/upc, "
        "unlabeled/inclusion_rate, unlabeled/top1, unlabeled/uus_rate)"
    )


def test_every_recorded_metric_has_a_curve(complete_seeds: CompleteSeeds, tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1, 2), more={"train/extra": 1.5, "train/extra_rate": 0.5})
    built = report(tmp_path / "runs", "target/top1", "summary")
    (curve,) = curves(built.results.evaluations, built.results.targets)
    assert curve.mean["train/extra"] == [1.5] * 3
    assert curve.mean["train/extra_rate"] == [50.0] * 3
    assert not {"iteration", "epoch", "seconds"} & set(curve.mean)
