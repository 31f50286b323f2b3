"""How reports identify methods, and what they call them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext.report.build import build
from semilearn_ext.report.methods import MethodId, dataset_title, setting_title


@pytest.mark.parametrize(
    ("method", "name", "title"),
    [
        (MethodId("fixmatch"), "fixmatch", "FixMatch"),
        (MethodId("fixmatch", ("upcsc",)), "fixmatch_upcsc", "FixMatch + UPCSC"),
        (MethodId("freematch", ("upc", "sc"), "low_lr"), "freematch_upc_sc--low_lr", "FreeMatch + UPC + SC (low lr)"),
        (MethodId("fixmatch", (), "sc"), "fixmatch--sc", "FixMatch (sc)"),
    ],
)
def test_names_and_titles(method: MethodId, name: str, title: str) -> None:
    assert (method.name, method.title) == (name, title)


def test_the_recorded_title_is_used_only_for_unregistered_methods() -> None:
    assert MethodId("fixmatch", ("entropy",), "", "FixMatch + Entropy!").title == "FixMatch + Entropy!"
    assert MethodId("mymatch", (), "", "MyMatch").title == "MyMatch"
    assert MethodId("fixmatch", ("upcsc",), "", "an older title").title == "FixMatch + UPCSC"


def test_the_title_is_not_part_of_the_identity() -> None:
    assert MethodId("fixmatch", ("entropy",), "", "one") == MethodId("fixmatch", ("entropy",), "", "another")
    assert len({MethodId("fixmatch", ("upc",)), MethodId("fixmatch", (), "upc"), MethodId("fixmatch")}) == 3


def test_baselines_of_methods() -> None:
    assert MethodId("fixmatch").baseline is None
    assert MethodId("fixmatch", ("upcsc",), "top1_proxy").baseline == MethodId("fixmatch")
    assert MethodId("softmatch", (), "low").baseline == MethodId("softmatch")


def test_a_variant_is_never_mistaken_for_a_plugin(complete_seeds: Callable[..., None], tmp_path: Path) -> None:
    complete_seeds(70, dataset="pacs", variant="sc")
    complete_seeds(75, dataset="pacs", plugins=("sc",))
    complete_seeds(80, dataset="pacs", plugins=("entropy",), title="FixMatch + Entropy")
    tables = {table.name: table for table in build([tmp_path / "runs"], ["summary", "ablation"], (), "last").tables}
    rows = {row[0].text: row[1].text for row in tables["summary"].panels[0].rows}
    assert rows == {
        "FixMatch (sc)": "73.0 ± 1.6",
        "FixMatch + SC": "78.0 ± 1.6",
        "FixMatch + Entropy": "83.0 ± 1.6",
    }
    ablation = {row[0].text: row[1].text for row in tables["ablation"].panels[0].rows}
    assert ablation["FixMatch + SC"] == "78.0 ± 1.6"
    data = tables["summary"].data.set_index("method")
    assert list(data.loc["fixmatch--sc", ["base", "plugins", "variant"]]) == ["fixmatch", "", "sc"]
    assert list(data.loc["fixmatch_sc", ["base", "plugins", "variant"]]) == ["fixmatch", "sc", ""]


def test_titles_of_datasets_and_settings() -> None:
    assert (dataset_title("pacs"), dataset_title("folder birds")) == ("PACS", "folder birds")
    assert setting_title("pacs", 1) == "PACS, 1 label per class"
    assert setting_title("office_home", 10) == "OfficeHome, 10 labels per class"
