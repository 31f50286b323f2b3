"""Tables of artificial runs. Every expected number was computed by hand (see the fixture ``tree``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from semilearn_ext.errors import UserError
from semilearn_ext.report.build import TABLES, Report, build
from semilearn_ext.report.layout import DASH, MINUS, Panel, Table
from semilearn_ext.report.tables import each_run


def report(root: Path, *names: str, compared: tuple[str, ...] = (), protocol: str = "last") -> Report:
    return build([root], names, compared, protocol)


def table(root: Path, name: str, **options: str) -> Table:
    return report(root, name, **options).tables[0]  # type: ignore[arg-type]


def texts(panel: Panel) -> dict[str, list[str]]:
    """The printed cells by row name, with plain hyphens for dashes and minus signs."""
    plain = str.maketrans({DASH: "-", MINUS: "-"})
    return {row[0].text: [cell.text.translate(plain) for cell in row[1:]] for row in panel.rows}


def row(data: pd.DataFrame, **fields: object) -> pd.Series:
    rows = data[(data[list(fields)] == list(fields.values())).all(axis=1)]
    assert len(rows) == 1
    return rows.iloc[0]


def test_mean_over_targets_then_mean_and_deviation_over_seeds(tree: Path) -> None:
    data = table(tree, "summary").data
    fixmatch = row(data, method="fixmatch")
    assert (fixmatch["mean"], fixmatch["n"]) == (pytest.approx(75.75), 5)
    assert fixmatch["std"] == pytest.approx(0.3952847)  # 0.25 x sqrt(2.5): ddof 1; ddof 0 would be 0.3535534
    upcsc = row(data, method="fixmatch_upcsc")
    assert (upcsc["mean"], upcsc["std"]) == (pytest.approx(78.0), pytest.approx(1.5811388))
    assert (upcsc["base"], upcsc["plugins"], upcsc["change"]) == ("fixmatch", "upcsc", pytest.approx(2.25))


def test_printed_cells(tree: Path) -> None:
    panel = table(tree, "summary").panels[0]
    assert texts(panel) == {
        "FreeMatch": ["76.5 ± 0.7 [n=2]", "12"],
        "FixMatch": ["75.8 ± 0.4", "12"],
        "FixMatch + UPCSC": ["78.0 ± 1.6 (+2.2)", "12"],
    }
    assert [cell.text for cells in panel.rows for cell in cells if cell.bold] == ["78.0 ± 1.6 (+2.2)"]


def test_a_seed_without_all_targets_is_not_in_the_mean_and_noted(tree: Path) -> None:
    built = table(tree, "summary")
    freematch = row(built.data, method="freematch")
    assert (freematch["mean"], freematch["n"], freematch["runs"]) == (pytest.approx(76.5), 2, 11)
    assert "FreeMatch (digits_mini, 10 labels per class): seed 3 without print, so not in the mean." in built.notes


def test_the_table_by_target(tree: Path) -> None:
    panel = table(tree, "by_target").panels[0]
    assert [column.title for column in panel.columns] == ["Method", "pen", "texture", "street", "print", "mean"]
    assert texts(panel)["FixMatch"] == ["93.0 ± 1.6", "80.0 ± 0.0", "70.0 ± 0.0", "60.0 ± 0.0", "75.8 ± 0.4"]
    assert texts(panel)["FixMatch + UPCSC"][3] == "68.0 ± 6.3"
    # Print was run with seeds 1 and 2 only, the other targets with three.
    assert texts(panel)["FreeMatch"][:4] == [
        "88.0 ± 0.0 [n=3]",
        "80.0 ± 0.0 [n=3]",
        "70.0 ± 0.0 [n=3]",
        "68.0 ± 2.8 [n=2]",
    ]
    # Equal as printed: both are best.
    assert [cell.bold for cell in (panel.rows[k][4] for k in range(3))] == [True, False, True]


@pytest.mark.parametrize(("protocol", "mean"), [("last", 75.75), ("source_val", 74.75), ("oracle", 76.75)])
def test_every_protocol_has_its_mean_and_caption(tree: Path, protocol: str, mean: float) -> None:
    built = table(tree, "summary", protocol=protocol)
    assert row(built.data, method="fixmatch")["mean"] == pytest.approx(mean)
    assert f"protocol {protocol}" in built.caption
    assert ("an upper bound, never a result" in built.caption) == (protocol == "oracle")
    assert (built.panels[0].columns[1].title == "upper bound (oracle)") == (protocol == "oracle")


def test_averaged_weights_are_a_protocol_and_runs_without_are_named(run: Callable[..., Path], tmp_path: Path) -> None:
    shares = {"last": 0.5, "source_val": 0.5, "oracle": 0.5}
    for target in ("pen", "texture", "street", "print"):
        run(50, target_domain=target, top1={**shares, "ema": 0.75, "swa": 0.625})
    run(50, base="freematch")
    built = report(tmp_path / "runs", "summary", protocol="swa")
    assert list(built.tables[0].data["mean"]) == [62.5]
    assert "the uniform average of the weights over the end of training" in built.tables[0].caption
    assert built.tables[0].panels[0].columns[1].title == "accuracy (SWA weights)"
    assert "1 run of freematch without averaged weights of kind swa; left out" in built.warnings
    assert list(report(tmp_path / "runs", "summary", protocol="ema").tables[0].data["mean"]) == [75]
    with pytest.raises(UserError, match="no run has averaged weights of kind ema; train with --average ema"):
        report(tmp_path / "runs" / "digits_mini" / "10lpc" / "freematch", "summary", protocol="ema")


def test_one_seed_has_no_deviation(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1,))
    assert texts(table(tmp_path / "runs", "summary").panels[0])["FixMatch"][0] == "71.0 [n=1]"


def test_our_numbers_next_to_the_papers(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, dataset="pacs", scale="paper")
    complete_seeds(75, dataset="pacs", scale="paper", base="fixmatch", plugins=("upcsc",))
    built = table(tmp_path / "runs", "label_10")
    panel = built.panels[0]
    assert [(column.block, column.title) for column in panel.columns[1:]] == [
        *(("PACS", "ours"), ("PACS", "paper"), ("PACS", "difference")),
    ]
    assert texts(panel) == {
        "ERM": ["-", "60.2 ± 2.0", "-"],
        "MeanTeacher": ["-", "66.0 ± 2.6", "-"],
        "FreeMatch": ["-", "73.5 ± 1.1", "-"],
        "FixMatch": ["73.0 ± 1.6", "76.8 ± 1.1", "-3.8"],
        "StyleMatch": ["-", "79.9 ± 1.0", "-"],
        "FreeMatch + UPCSC": ["-", "77.8 ± 1.4", "-"],
        "FixMatch + UPCSC": ["78.0 ± 1.6 (+5.0)", "79.6 ± 0.7", "-1.6"],
        "StyleMatch + UPCSC": ["-", "81.5 ± 0.8", "-"],
    }
    assert any("OfficeHome, 10 labels per class; DigitsDG" in note for note in built.notes)
    assert not any("scale" in note for note in built.notes)


def test_runs_at_reduced_scale_are_marked(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, dataset="pacs")
    notes = table(tmp_path / "runs", "label_10").notes
    assert (
        "The runs on PACS are at reduced scale, not at the paper's. Differences from the paper's numbers mean little."
        in notes
    )


def test_other_protocols_are_not_compared_with_the_paper(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, dataset="pacs")
    built = table(tmp_path / "runs", "label_10", protocol="oracle")
    assert [column.title for column in built.panels[0].columns] == ["Method", "upper bound (oracle)"]
    assert built.data["paper_mean"].isna().all()


def test_ablations_are_identified_by_their_variants(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(60, dataset="pacs")
    for k, variant in enumerate(("", "top1_proxy", "avg_proxy"), start=1):
        complete_seeds(60 + k, dataset="pacs", plugins=("upcsc",), variant=variant)
    complete_seeds(70, dataset="pacs", plugins=("upc",), variant="without_uu")
    built = report(tmp_path / "runs", *TABLES)
    panels = {table.name: table.panels[0] for table in built.tables}
    assert texts(panels["ablation_sc"])["FixMatch + UPCSC (top1 proxy)"] == ["65.0 ± 1.6 (+2.0)", "78.9", "-13.9"]
    assert texts(panels["ablation_sc"])["FixMatch + UPCSC"] == ["64.0 ± 1.6 (+1.0)", "79.6 ± 0.7", "-15.6"]
    assert texts(panels["ablation_upc"])["FixMatch + UPC (without uu)"] == ["73.0 ± 1.6 (+10.0)", "78.0", "-5.0"]
    assert "ablation: no runs for this table; left out" in built.absent
    assert {"plugins", "plugins_freematch", "label_5"} & set(panels) == set()


def test_panels_by_label_count(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    for labels in (5, 10):
        complete_seeds(60 + labels, dataset="office_home", base="fixmatch", plugins=("dgwm",), labels_per_class=labels)
    built = table(tmp_path / "runs", "plugins")
    assert [panel.title for panel in built.panels] == ["10 labels per class", "5 labels per class"]
    title = next(name for name in texts(built.panels[0]) if name.endswith("DGWM"))
    assert texts(built.panels[0])[title] == ["73.0 ± 1.6", "59.4 ± 0.4", "+13.6"]
    assert texts(built.panels[1])[title] == ["68.0 ± 1.6", "56.1 ± 0.4", "+11.9"]


def test_a_missing_baseline_is_named(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, base="fixmatch", plugins=("upcsc",))
    built = table(tmp_path / "runs", "summary")
    assert texts(built.panels[0])["FixMatch + UPCSC"][0] == "73.0 ± 1.6"
    assert [note for note in built.notes if "there are no runs of FixMatch, so no change is shown" in note]


def test_a_change_is_over_the_seeds_that_both_have(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70)  # 71 … 75
    complete_seeds(72, seeds=(4, 5, 6), base="fixmatch", plugins=("upcsc",))  # 76, 77, 78
    built = table(tmp_path / "runs", "summary")
    # Over seeds 4 and 5: 76.5 - 74.5. The difference of the two means would be 4.
    assert texts(built.panels[0])["FixMatch + UPCSC"][0] == "77.0 ± 1.0 (+2.0) [n=3]"
    assert [note for note in built.notes if "the change from FixMatch is over seeds 4, 5, which both have" in note]


def test_methods_without_a_common_seed_have_no_change(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, seeds=(1, 2))
    complete_seeds(72, seeds=(3,), base="fixmatch", plugins=("upcsc",))
    built = table(tmp_path / "runs", "summary")
    assert texts(built.panels[0])["FixMatch + UPCSC"][0] == "75.0 [n=1]"
    assert [note for note in built.notes if "is shown, because they have no seed in common" in note]


def test_incomplete_seeds_have_no_mean(run: Callable[..., Path], tmp_path: Path) -> None:
    run(80, target_domain="pen")
    built = report(tmp_path / "runs", "summary", "by_target")
    assert texts(built.tables[0].panels[0])["FixMatch"][0] == "- [n=0]"
    assert texts(built.tables[1].panels[0])["FixMatch"] == ["80.0 [n=1]", "-", "-", "-", "- [n=0]"]
    assert "seed 1 without texture, street, print" in built.tables[0].notes[0]


def test_side_by_side_in_the_given_order(tree: Path) -> None:
    built = report(tree, compared=("fixmatch_upcsc", "freematch"))
    assert [table.name for table in built.tables] == ["compare", "compare_statistics"]
    assert list(texts(built.tables[0].panels[0])) == ["FixMatch + UPCSC", "FreeMatch"]


def test_observation_next_to_the_papers(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, dataset="pacs", epochs=(1.0, 3.1, 5.0))
    complete_seeds(70, epochs=(1.0, 3.1, 5.0))
    complete_seeds(70, base="fixmatch", plugins=("upcsc",))
    built = table(tmp_path / "runs", "observation")
    assert "(epoch 3.1)" in built.caption
    assert texts(built.panels[0]) == {
        "UUS rate": ["0.31 ± 0.00", "0.22", "+0.09", "0.31 ± 0.00"],
        "Inclusion rate": ["0.70 ± 0.00", "0.70", "+0.00", "0.70 ± 0.00"],
    }


def test_no_observation_without_an_evaluation_near_epoch_three(
    complete_seeds: Callable[..., None], tmp_path: Path
) -> None:
    complete_seeds(70, epochs=(1.0, 2.0, 5.0))
    built = report(tmp_path / "runs", "summary", "observation")
    assert built.absent == ["observation: no runs for this table; left out"]


def test_two_folders_of_images_are_two_datasets(run: Callable[..., Path], tmp_path: Path) -> None:
    """Their targets are those that were run."""
    for folder in ("birds", "fish"):
        for target in ("sea", "sky"):
            fields = {"dataset": "folder", "target_domain": f"{folder}_{target}", "config_hash": folder}
            run(80, **fields, config={"data_dir": f"/somewhere/{folder}"})
    panels = table(tmp_path / "runs", "summary").panels
    assert [(panel.title, texts(panel)["FixMatch"][0]) for panel in panels] == [
        ("folder birds, 10 labels per class", "80.0 [n=1]"),
        ("folder fish, 10 labels per class", "80.0 [n=1]"),
    ]


def test_the_test_view_and_the_label_splits_of_every_run_are_named(run: Callable[..., Path], tmp_path: Path) -> None:
    for target in ("pen", "texture", "street", "print"):
        path = run(70, target_domain=target)
        (path / "config.yaml").write_text("test_view: center\nsplits: published\n")
    built = build([tmp_path / "runs"], ["summary"], (), "last")
    assert {"test view: center", "label splits: published"} <= set(built.tables[0].notes)
    frame = each_run(built.results)
    assert list(frame["test_view"]) == ["center"] * 4
    assert list(frame["splits"]) == ["published"] * 4
