"""Tables from runs made by hand. Every expected number was worked out on paper (see the fixture ``tree``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from semilearn_ext.report.build import TABLES, Report, build
from semilearn_ext.report.layout import DASH, MINUS, Panel, Table


def report(root: Path, *names: str, compared: tuple[str, ...] = (), protocol: str = "last") -> Report:
    return build([root], names, compared, protocol)


def table(root: Path, name: str, **options: str) -> Table:
    return report(root, name, **options).tables[0]  # type: ignore[arg-type]


def texts(panel: Panel) -> dict[str, list[str]]:
    """The printed cells by row name, with plain hyphens for dashes and minus signs."""
    plain = str.maketrans({DASH: "-", MINUS: "-"})
    return {row[0].text: [cell.text.translate(plain) for cell in row[1:]] for row in panel.rows}


def row(data: pd.DataFrame, **about: object) -> pd.Series:
    found = data[(data[list(about)] == list(about.values())).all(axis=1)]
    assert len(found) == 1
    return found.iloc[0]


def test_mean_over_targets_then_mean_and_deviation_over_seeds(tree: Path) -> None:
    data = table(tree, "summary").data
    fixmatch = row(data, method="fixmatch")
    assert (fixmatch["mean"], fixmatch["n"]) == (pytest.approx(75.75), 5)
    assert fixmatch["std"] == pytest.approx(0.3952847)  # 0.25 x sqrt(2.5): ddof 1; ddof 0 would be 0.3535534
    upcsc = row(data, method="fixmatch_upcsc")
    assert (upcsc["mean"], upcsc["std"]) == (pytest.approx(78.0), pytest.approx(1.5811388))
    assert (upcsc["base"], upcsc["change"]) == ("fixmatch", pytest.approx(2.25))


def test_what_is_printed(tree: Path) -> None:
    panel = table(tree, "summary").panels[0]
    assert texts(panel) == {
        "FreeMatch": ["76.5 ± 0.7 [n=2]", "12"],
        "FixMatch": ["75.8 ± 0.4", "12"],
        "FixMatch + UPCSC": ["78.0 ± 1.6 (+2.2)", "12"],
    }
    assert [cell.text for cells in panel.rows for cell in cells if cell.bold] == ["78.0 ± 1.6 (+2.2)"]


def test_a_seed_without_all_targets_is_not_in_the_mean_and_that_is_said(tree: Path) -> None:
    made = table(tree, "summary")
    freematch = row(made.data, method="freematch")
    assert (freematch["mean"], freematch["n"], freematch["runs"]) == (pytest.approx(76.5), 2, 11)
    assert "FreeMatch (digits_mini, 10 labels a class): seed 3 without print, so not in the mean." in made.notes


def test_by_target(tree: Path) -> None:
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
def test_protocols(tree: Path, protocol: str, mean: float) -> None:
    made = table(tree, "summary", protocol=protocol)
    assert row(made.data, method="fixmatch")["mean"] == pytest.approx(mean)
    assert f"protocol {protocol}" in made.caption
    assert ("an upper bound, never a result" in made.caption) == (protocol == "oracle")
    assert (made.panels[0].columns[1].title == "upper bound (oracle)") == (protocol == "oracle")


def test_one_seed_has_no_deviation(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, seeds=(1,))
    assert texts(table(tmp_path / "runs", "summary").panels[0])["FixMatch"][0] == "71.0 [n=1]"


def test_beside_the_paper(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, dataset="pacs", scale="paper")
    whole(75, dataset="pacs", scale="paper", algorithm="fixmatch_upcsc")
    made = table(tmp_path / "runs", "label_10")
    panel = made.panels[0]
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
    assert any("OfficeHome, 10 labels a class; DigitsDG" in note for note in made.notes)
    assert not any("scale" in note for note in made.notes)


def test_runs_of_reduced_scale_are_said_to_be(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, dataset="pacs")
    notes = table(tmp_path / "runs", "label_10").notes
    assert (
        "Runs on PACS are of reduced scale, not the paper's. Differences from the paper's numbers say little." in notes
    )


def test_other_protocols_are_not_set_beside_the_paper(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, dataset="pacs")
    made = table(tmp_path / "runs", "label_10", protocol="oracle")
    assert [column.title for column in made.panels[0].columns] == ["Method", "upper bound (oracle)"]
    assert made.data["paper_mean"].isna().all()


def test_supervised_is_erm(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(50, dataset="pacs", algorithm="supervised")
    assert texts(table(tmp_path / "runs", "label_10").panels[0])["ERM"] == ["53.0 ± 1.6", "60.2 ± 2.0", "-7.2"]


def test_ablations_by_the_names_of_their_configs(whole: Callable[..., None], tmp_path: Path) -> None:
    for k, method in enumerate(("fixmatch", "fixmatch_upcsc", "fixmatch_upcsc_top1_proxy", "fixmatch_upcsc_avg_proxy")):
        whole(60 + k, dataset="pacs", algorithm=method)
    whole(70, dataset="pacs", algorithm="fixmatch_upc_without_uu")
    made = report(tmp_path / "runs", *TABLES)
    shown = {one.name: one.panels[0] for one in made.tables}
    assert texts(shown["ablation_sc"])["FixMatch + UPCSC (top1 proxy)"] == ["65.0 ± 1.6 (+2.0)", "78.9", "-13.9"]
    assert texts(shown["ablation_sc"])["FixMatch + UPCSC"] == ["64.0 ± 1.6 (+1.0)", "79.6 ± 0.7", "-15.6"]
    assert texts(shown["ablation_upc"])["FixMatch + UPC (without uu)"] == ["73.0 ± 1.6 (+10.0)", "78.0", "-5.0"]
    assert "ablation: nothing it is about was run; left out" in made.absent
    assert {"plugins", "plugins_freematch", "label_5"} & set(shown) == set()


def test_panels_by_label_count(whole: Callable[..., None], tmp_path: Path) -> None:
    for labels in (5, 10):
        whole(60 + labels, dataset="office_home", algorithm="fixmatch_dgwm", labels_per_class=labels)
    made = table(tmp_path / "runs", "plugins")
    assert [panel.title for panel in made.panels] == ["10 labels a class", "5 labels a class"]
    title = next(name for name in texts(made.panels[0]) if name.endswith("DGWM"))
    assert texts(made.panels[0])[title] == ["73.0 ± 1.6", "59.4 ± 0.4", "+13.6"]
    assert texts(made.panels[1])[title] == ["68.0 ± 1.6", "56.1 ± 0.4", "+11.9"]


def test_a_missing_baseline_is_named(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, algorithm="fixmatch_upcsc")
    made = table(tmp_path / "runs", "summary")
    assert texts(made.panels[0])["FixMatch + UPCSC"][0] == "73.0 ± 1.6"
    assert [note for note in made.notes if "no runs of its base FixMatch, so no change is shown" in note]


def test_a_change_is_over_the_seeds_that_both_have(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70)  # 71 … 75
    whole(72, seeds=(4, 5, 6), algorithm="fixmatch_upcsc")  # 76, 77, 78
    made = table(tmp_path / "runs", "summary")
    # Over seeds 4 and 5: 76.5 - 74.5. The difference of the two means would be 4.
    assert texts(made.panels[0])["FixMatch + UPCSC"][0] == "77.0 ± 1.0 (+2.0) [n=3]"
    assert [note for note in made.notes if "change against FixMatch over seeds 4, 5, which both have" in note]


def test_seeds_in_common_are_none(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, seeds=(1, 2))
    whole(72, seeds=(3,), algorithm="fixmatch_upcsc")
    made = table(tmp_path / "runs", "summary")
    assert texts(made.panels[0])["FixMatch + UPCSC"][0] == "75.0 [n=1]"
    assert [note for note in made.notes if "not shown: no seed in common" in note]


def test_only_incomplete_seeds(run: Callable[..., Path], tmp_path: Path) -> None:
    run(80, target_domain="pen")
    made = report(tmp_path / "runs", "summary", "by_target")
    assert texts(made.tables[0].panels[0])["FixMatch"][0] == "- [n=0]"
    assert texts(made.tables[1].panels[0])["FixMatch"] == ["80.0 [n=1]", "-", "-", "-", "- [n=0]"]
    assert "seed 1 without texture, street, print" in made.tables[0].notes[0]


def test_side_by_side_in_the_order_asked_for(tree: Path) -> None:
    made = report(tree, compared=("fixmatch_upcsc", "freematch"))
    assert [one.name for one in made.tables] == ["compare", "compare_statistics"]
    assert list(texts(made.tables[0].panels[0])) == ["FixMatch + UPCSC", "FreeMatch"]


def test_observation_beside_the_paper(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, dataset="pacs", epochs=(1.0, 3.1, 5.0))
    whole(70, epochs=(1.0, 3.1, 5.0))
    whole(70, algorithm="fixmatch_upcsc")
    made = table(tmp_path / "runs", "observation")
    assert "(epoch 3.1)" in made.caption
    assert texts(made.panels[0]) == {
        "UUS rate": ["0.31 ± 0.00", "0.22", "+0.09", "0.31 ± 0.00"],
        "Inclusion rate": ["0.70 ± 0.00", "0.70", "+0.00", "0.70 ± 0.00"],
    }


def test_no_observation_without_an_evaluation_near_epoch_three(whole: Callable[..., None], tmp_path: Path) -> None:
    whole(70, epochs=(1.0, 2.0, 5.0))
    made = report(tmp_path / "runs", "summary", "observation")
    assert made.absent == ["observation: nothing it is about was run; left out"]


def test_anybodys_own_data(run: Callable[..., Path], tmp_path: Path) -> None:
    """The targets are those that were run, and two folders are two benchmarks."""
    for folder in ("birds", "fish"):
        for target in ("sea", "sky"):
            about = {"dataset": "folder", "target_domain": f"{folder}_{target}", "config_hash": folder}
            run(80, **about, config={"data_dir": f"/somewhere/{folder}"})
    panels = table(tmp_path / "runs", "summary").panels
    assert [(panel.title, texts(panel)["FixMatch"][0]) for panel in panels] == [
        ("folder birds, 10 labels a class", "80.0 [n=1]"),
        ("folder fish, 10 labels a class", "80.0 [n=1]"),
    ]
