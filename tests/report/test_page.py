"""The page in a real browser: no errors, no network access, sorting, filters, and the width of a phone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.report.build import TABLES, build
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.page import page

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def file(tree: Path, complete_seeds: Callable[..., None], run: Callable[..., Path], tmp_path: Path) -> Path:
    """Two datasets, two label counts, an unfinished run, and names that need escaping."""
    for labels in (5, 10):
        complete_seeds(60 + labels, dataset="pacs", labels_per_class=labels, more={"train/upc": 2.5})
    run(50, variant="<script>alert(1)&")
    (run(50, seed=9) / "result.json").unlink()
    built = build([tree], TABLES, ("fixmatch", "freematch"), "last")
    path = tmp_path / "page.html"
    path.write_text(page(built, "tables runs --out 'a & b'"), encoding="utf-8")
    return path


@pytest.fixture
def visit(browser: Any, file: Path) -> Iterator[Callable[..., Any]]:
    """Open the page; console messages, network requests and exceptions are errors."""
    problems: list[str] = []
    contexts = []

    def open_page(**options: Any) -> Any:
        context = browser.new_context(**options)
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: problems.append(message.text))
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or problems.append(request.url))
        tab.goto(file.as_uri())
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def first_column(tab: Any, section: str) -> list[str]:
    texts: list[str] = tab.locator(f"#{section} table").first.locator("tbody tr:visible th").all_inner_texts()
    return texts


def test_a_click_sorts_and_a_second_click_reverses(visit: Callable[..., Any]) -> None:
    tab = visit(viewport=DESK)
    head = tab.locator("#label_10 table th", has_text="accuracy").first
    before = first_column(tab, "label_10")
    head.get_by_role("button").click()
    down = first_column(tab, "label_10")
    assert head.get_attribute("aria-sort") == "descending"
    assert down[:3] == ["FixMatch + UPCSC", "FreeMatch", "FixMatch"]
    head.get_by_role("button").press("Enter")
    up = first_column(tab, "label_10")
    assert head.get_attribute("aria-sort") == "ascending"
    assert up[:3] == ["FixMatch", "FreeMatch", "FixMatch + UPCSC"]
    # Methods without runs are last in both directions.
    assert (
        set(down[3:]) == set(up[3:]) == {"ERM", "MeanTeacher", "StyleMatch", "FreeMatch + UPCSC", "StyleMatch + UPCSC"}
    )
    assert sorted(before) == sorted(up)
    tab.locator("#label_10 table th", has_text="Method").get_by_role("button").click()
    assert first_column(tab, "label_10") == sorted(before, key=str.lower)
    assert head.get_attribute("aria-sort") == "none"


def test_filters_hide_tables_columns_and_rows(visit: Callable[..., Any]) -> None:
    tab = visit(viewport=DESK)
    tab.get_by_label("Label count").select_option("5")
    assert tab.locator("#label_10").is_hidden()
    assert tab.locator("#label_5").is_visible()
    tab.get_by_label("Label count").select_option("")
    tab.get_by_label("Benchmark").select_option("pacs")
    assert tab.locator("#label_10 thead th:visible").all_inner_texts() == [
        "PACS",
        "Method",
        "ours",
        "paper",
        "difference",
    ]
    assert tab.locator("#summary caption:visible").all_inner_texts() == [
        "PACS, 10 labels per class",
        "PACS, 5 labels per class",
    ]
    tab.get_by_label("Benchmark").select_option("")
    tab.get_by_label("Find a method").fill("upcsc")
    assert all("UPCSC" in name for name in first_column(tab, "label_10"))


def test_curves_and_bars_are_drawn(visit: Callable[..., Any]) -> None:
    tab = visit(viewport=DESK)
    curves = tab.locator("#curves figure", has_text="digits_mini, 10 labels")
    assert curves.locator(".legend button").all_inner_texts() == ["FixMatch", "FixMatch + UPCSC", "FreeMatch"]
    assert curves.locator("svg[role=img] path").count() == 6  # three lines, three bands
    drawing = curves.locator("svg[role=img]")
    drawing.hover(position={"x": drawing.bounding_box()["width"] - 12, "y": 60})
    assert curves.locator(".tip").inner_text().splitlines()[:2] == ["epoch 3", "FixMatch + UPCSC 78.0 ± 1.6"]
    curves.get_by_role("button", name="FreeMatch", exact=True).click()
    assert curves.locator("svg[role=img] path").count() == 4
    tab.locator("#metric").select_option("unlabeled/top1")
    assert curves.locator("svg[role=img] path").count() == 4
    bars = tab.locator("#bars figure", has_text="digits_mini, 10 labels")
    drawn = bars.locator("svg[role=img] rect:not([fill=transparent])")
    # Three methods on four targets and the mean; the method with the special name has only one target.
    assert drawn.count() == 3 * 5 + 1


def test_any_metric_can_be_drawn(visit: Callable[..., Any]) -> None:
    tab = visit(viewport=DESK)
    tab.locator("#metric").select_option("train/upc")
    drawing = tab.locator("#curves figure", has_text="PACS, 5 labels").locator("svg[role=img]")
    assert drawing.locator("path").count() == 2  # a line and a band
    assert "UPC on training batches" in drawing.text_content()
    assert "%" not in drawing.text_content()
    others = tab.locator("#curves figure", has_text="digits_mini, 10 labels")
    assert "not measured for these methods" in others.inner_text()


def test_a_page_about_another_metric(browser: Any, file: Path, tree: Path) -> None:
    built = build([tree], ["summary"], (), "last", Metric("train/upc"))
    file.write_text(page(built, "tables"), encoding="utf-8")
    tab = browser.new_page()
    tab.goto(file.as_uri())
    assert "UPC on training batches (train/upc), at the last evaluation." in tab.locator("header").inner_text()
    bars = tab.locator("#bars figure", has_text="PACS, 5 labels").locator("svg[role=img]")
    heights = [float(bar.get_attribute("height")) for bar in bars.locator("rect:not([fill=transparent])").all()]
    assert len(heights) == 5
    assert min(heights) == pytest.approx(max(heights))
    assert min(heights) > 100
    tab.close()


def test_the_page_is_complete(visit: Callable[..., Any], file: Path) -> None:
    tab = visit(viewport=DESK)
    text = tab.locator("body").inner_text()
    for words in ("1 unfinished", "tables runs --out 'a & b'", "c0ffee", "FixMatch (<script>alert(1)&)", "0.0625"):
        assert words in text, words
    assert not re.search(r'(src|href)="(?!#|data:)', file.read_text(encoding="utf-8"))
    tab.locator("#settings summary", has_text="FixMatch + UPCSC").first.click()
    assert "config hash of fixmatch_upcsc 10 digits_mini" in tab.locator("#settings pre:visible").inner_text()
    missing = tab.evaluate(
        "[...document.querySelectorAll('nav a')].filter(a => !document.querySelector(a.hash)).length"
    )
    assert missing == 0
    assert tab.locator("table").count() == tab.locator("table > caption").count() > 5


def test_many_methods_have_different_styles_and_six_are_shown(
    visit: Callable[..., Any], run: Callable[..., Path], tree: Path, file: Path
) -> None:
    bases = ["fixmatch", "flexmatch", "freematch", "softmatch", "uda", "dash", "comatch", "simmatch", "adamatch"]
    for base in bases:
        for plugins in ([], ["upcsc"]) if base != "comatch" else ([],):
            run(70, dataset="pacs", target_domain="photo", labels_per_class=3, base=base, plugins=plugins)
    file.write_text(page(build([tree], TABLES, (), "last"), "tables"), encoding="utf-8")
    bars = visit(viewport=DESK).locator("#bars figure", has_text="PACS, 3 labels")
    pressed = bars.locator(".legend button[aria-pressed=true]").all_inner_texts()
    assert len(pressed) == 6
    assert all(f"{name} + UPCSC" in pressed for name in pressed if "UPCSC" not in name)
    styles = bars.locator(".legend line").evaluate_all(
        "lines => lines.map(line => line.getAttribute('stroke') + line.getAttribute('stroke-dasharray'))"
    )
    assert len(set(styles)) == len(styles) == 17


def test_runs_that_are_evaluated_once_have_no_curves(
    visit: Callable[..., Any], tmp_path: Path, run: Callable[..., Path], file: Path
) -> None:
    path = run(70, base="softmatch")
    (path / "metrics.jsonl").write_text((path / "metrics.jsonl").read_text().splitlines(keepends=True)[-1])
    file.write_text(page(build([path], TABLES, (), "last"), "tables"), encoding="utf-8")
    tab = visit(viewport=DESK)
    assert tab.locator("#curves, a[href='#curves']").count() == 0
    assert tab.locator("#bars svg[role=img]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_in_light_and_dark_mode(visit: Callable[..., Any], scheme: str) -> None:
    tab = visit(viewport=PHONE, color_scheme=scheme)
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    longest = "document.querySelector('#metric').add(new Option('a very long name of a metric '.repeat(4)))"
    assert tab.evaluate(f"{longest}, document.documentElement.scrollWidth") == 390
    background = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
