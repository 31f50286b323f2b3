"""Markdown, CSV and LaTeX say the same; the LaTeX compiles."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from semilearn_ext.report.build import TABLES, build
from semilearn_ext.report.layout import DASH
from semilearn_ext.report.paper_numbers import accuracy, observation
from semilearn_ext.report.writers import csv, latex, latex_document, markdown, markdown_page, tex
from tests.conftest import SHARED


def test_markdown(tree: Path) -> None:
    made = build([tree], ["summary"], (), "last")
    text = markdown(made.tables[0])
    assert "| FixMatch         | 75.8 ± 0.4            | 12            |" in text
    assert "| FixMatch + UPCSC | **78.0 ± 1.6 (+2.2)** | 12            |" in text
    whole = markdown_page(made.tables, "tables runs", ["something was odd"])
    assert "Made by `tables runs`." in whole
    assert "- something was odd" in whole


def test_csv_is_unrounded_and_reads_back(tree: Path) -> None:
    made = build([tree], ["summary"], (), "last").tables[0]
    text = csv(made.data, "tables runs")
    assert text.startswith("# made by: tables runs\n")
    read = pd.read_csv(io.StringIO(text), comment="#")
    assert list(read["std"]) == pytest.approx(list(made.data["std"]))
    assert read.loc[0, "labels_per_class"] == 10


def test_latex_escapes() -> None:
    assert tex(f"50 % of a_b & c {{x}} ± {DASH}") == r"50 \% of a\_b \& c \{x\} $\pm$ --"
    assert tex("Käse 猫") == "Kase ?"


def test_latex_of_every_table_compiles(whole: Callable[..., None], run: Callable[..., Path], tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("no pdflatex on this machine")
    methods = ("fixmatch", "fixmatch_upc", "fixmatch_upcsc_avg_proxy", "fixmatch_upc_without_uu", "freematch_fbcsa")
    for labels in (5, 10):
        for dataset in ("pacs", "digits_dg", "digits_mini"):
            for method in (*methods, "fixmatch_dgwm"):
                whole(60, seeds=(1, 2), dataset=dataset, algorithm=method, labels_per_class=labels)
    whole(50, seeds=(3,), config_hash="other", config={"net": "wide_{_}%#&~^\\$ $x"})
    run(70, algorithm="meanteacher")
    made = build([tmp_path / "runs"], TABLES, ("fixmatch", "fixmatch_dgwm"), "last")
    assert {table.name for table in made.tables} == {*TABLES, "compare", "compare_statistics"}
    names = [table.name for table in made.tables]
    (tmp_path / "all.tex").write_text(latex_document(names, "tables runs_50%"))
    for table in made.tables:
        (tmp_path / f"{table.name}.tex").write_text(latex(table, "tables runs_50%"))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "all.pdf").stat().st_size > 10_000
    assert "Overfull" not in done.stdout


def test_the_papers_numbers_are_the_papers() -> None:
    found = accuracy().set_index(["dataset", "labels", "method"])
    assert tuple(found.loc[("pacs", 10, "fixmatch_upcsc")]) == (79.6, 0.7)
    assert tuple(found.loc[("mini_domainnet", 5, "stylematch_dgwm")]) == (50.8, 0.4)
    assert observation().loc["office_home", "uus_rate"] == 0.51
    if not SHARED.is_dir():
        pytest.skip(f"the paper's own files are not in {SHARED}")
    package = Path(__file__).parents[2] / "semilearn_ext" / "report" / "paper"
    for name in ("accuracy.csv", "observation.csv"):
        assert (package / name).read_bytes() == (SHARED / "paper" / name).read_bytes()
