"""Records: tables of records have the same bytes as tables of run folders, and damaged records are detected."""

from __future__ import annotations

import hashlib
import itertools
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext import files
from semilearn_ext.__main__ import main
from semilearn_ext.errors import UserError, exit_code_of
from semilearn_ext.report.build import build
from semilearn_ext.report.collect import collect
from semilearn_ext.report.excerpts import update
from semilearn_ext.report.layout import DASH, MINUS
from semilearn_ext.report.records import read_records


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def make_tables(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ssdg", "tables", *words])
    return exit_code_of(main)


@pytest.fixture
def third(run: Callable[..., Path]) -> Path:
    """A run with numbers of many digits, a metric that no other run has, and an infinite metric."""
    more = {"unlabeled/uus_rate": 1 / 3, "train/mine": 2 / 7, "unlabeled/kept_top1": None, "train/inf": float("inf")}
    more |= {"train/zero": 0.0, "lr/a": 1e-7}
    path = run(100 / 3, base="softmatch", seed=7, more=more, config={"pretrain_path": "/my/w.pth"})
    result = json.loads((path / "result.json").read_text())
    result["metrics"] = {name: value for name, value in result["metrics"].items() if value is not None}
    result["top1"]["ema"] = 0.123456
    (path / "result.json").write_text(json.dumps(result))
    return path


def test_tables_from_a_record_have_the_same_bytes(
    tree: Path, third: Path, run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(50, base="softmatch", seed=10)
    collected = collect([tree], tmp_path / "record")
    assert (collected.added, collected.known, collected.warnings) == (len(read_records([tree]).runs), 0, [])
    monkeypatch.chdir(tmp_path)
    assert make_tables(monkeypatch, "runs", "--out", "from_runs") == 0
    assert make_tables(monkeypatch, "record", "--out", "from_record") == 0
    from_runs, from_record = (
        {
            name: text.replace("ssdg tables runs --out from_runs", "COMMAND").replace(
                "ssdg tables record --out from_record", "COMMAND"
            )
            for name, text in content(tmp_path / out).items()
        }
        for out in ("from_runs", "from_record")
    )
    assert {"tables.md", "page.html", "csv/runs.csv", "csv/statistics.csv", "latex/all.tex"} <= from_runs.keys()
    assert "c0ffee" in from_runs["page.html"]
    assert from_runs == from_record
    assert f"{2 / 7}" in from_record["csv/runs.csv"]


def test_a_record_is_small_and_contains_no_machine_paths(third: Path, tmp_path: Path) -> None:
    collect([tmp_path / "runs"], tmp_path / "record")
    (folder,) = (tmp_path / "record/digits_mini/10lpc/softmatch").iterdir()
    texts = content(folder)
    assert texts.keys() == {"experiment.yaml", "runs.csv", "curves.csv", "SHA256SUMS"}
    assert "pretrain_path: w.pth" in texts["experiment.yaml"]
    assert texts["curves.csv"].splitlines()[1].startswith("pen,7,10,1,")
    assert ",0.3333," in texts["curves.csv"]
    assert not [text for text in texts.values() if str(tmp_path) in text or "/my/" in text]


def test_records_can_be_merged_in_any_order(tree: Path, run: Callable[..., Path], tmp_path: Path) -> None:
    shutil.copytree(tree / "digits_mini/10lpc/fixmatch", tmp_path / "other/digits_mini/10lpc/fixmatch")
    for seed in (1, 2):
        for path in (tree / "digits_mini/10lpc/fixmatch").glob(f"*/seed{seed}"):
            shutil.rmtree(path)
    collect([tree], tmp_path / "here")
    collect([tmp_path / "other"], tmp_path / "there")
    first = collect([tmp_path / "there"], tmp_path / "here")
    assert (first.added, first.known) == (8, 12)
    second = collect([tmp_path / "there", tmp_path / "other", tree], tmp_path / "here")
    assert second.added == 0
    collect([tmp_path / "here"], tmp_path / "there")
    assert content(tmp_path / "here") == content(tmp_path / "there")
    assert len(read_records([tmp_path / "here"]).runs) == 51


def test_two_results_of_one_run_that_differ_are_an_error_that_names_both(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    path = run(80)
    collect([tmp_path / "runs"], tmp_path / "record")
    before = content(tmp_path / "record")
    run(70, base="softmatch")
    result = json.loads((path / "result.json").read_text())
    (path / "result.json").write_text(json.dumps({**result, "seconds": 99.0}))
    assert collect([path], tmp_path / "record").known == 1
    result["metrics"]["unlabeled/top1"] = 0.81
    (path / "result.json").write_text(json.dumps(result))
    with pytest.raises(UserError) as error:
        collect([tmp_path / "runs"], tmp_path / "record")
    for words in ("runs.csv:2 and ", f"{path}: different results of the same run", "unlabeled/top1: 0.8 and 0.81"):
        assert words in str(error.value)
    assert content(tmp_path / "record") == before


def sign(folder: Path) -> None:
    """Write valid checksums for the current files in ``folder``."""
    names = ("experiment.yaml", "runs.csv", "curves.csv")
    sums = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in names]
    (folder / "SHA256SUMS").write_text("".join(sums))


@pytest.mark.parametrize("number", range(1, 11))
@pytest.mark.parametrize("grows", [False, True])
def test_an_interrupted_write_is_repaired(
    number: int, grows: bool, run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in (1, 2):
        run(80, seed=seed)
        run(70, seed=seed, base="softmatch")
    complete, record = tmp_path / "complete", tmp_path / "record"
    collect([tmp_path / "runs"], complete)
    if grows:
        collect(list((tmp_path / "runs").rglob("seed1")), record)
    write, count = files.write_text, itertools.count(1)

    def interrupted(path: Path, text: str) -> None:
        if next(count) == number:
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_text", interrupted)
        with pytest.raises(KeyboardInterrupt):
            collect([tmp_path / "runs"], record)
    assert read_records([record]).warnings == [] if record.is_dir() else True
    collect([tmp_path / "runs"], record)
    assert content(record) == content(complete)


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("runs.csv", lambda text: text.replace(",0.8,", ",0.9,")),
        ("runs.csv", lambda text: text.replace("c0ffee", "c0ffef")),
        ("curves.csv", lambda text: text.replace(",10,", ",11,")),
        ("experiment.yaml", lambda text: text.replace("scale: reduced", "scale: paper")),
        ("runs.csv", lambda text: text.replace("\n", "\r\n")),
        ("SHA256SUMS", lambda text: text.replace(text[3], "0" if text[3] != "0" else "1", 1)),
        ("SHA256SUMS", lambda text: ""),
    ],
)
def test_a_changed_digit_is_one_line(
    file: str, change: Callable[[str], str], run: Callable[..., Path], tmp_path: Path
) -> None:
    run(80)
    run(70, base="softmatch")
    collect([tmp_path / "runs"], tmp_path / "record")
    path = next(path for path in sorted((tmp_path / "record").rglob(file)) if "softmatch" not in str(path))
    before, changed = path.read_bytes(), change(path.read_text()).encode()
    assert changed != before
    path.write_bytes(changed)
    records = read_records([tmp_path / "record"])
    assert len(records.runs) == 1
    (warning,) = records.warnings
    named = path if file != "SHA256SUMS" else path.parent
    assert warning.startswith(str(named))
    assert "does not match its checksum in SHA256SUMS" in warning
    with pytest.raises(UserError, match="does not match its checksum in SHA256SUMS"):
        collect([tmp_path / "runs"], tmp_path / "record")


@pytest.mark.parametrize("kind", ["missing", "folder", "link"])
def test_a_record_without_checksums_is_left_out(kind: str, run: Callable[..., Path], tmp_path: Path) -> None:
    run(80)
    collect([tmp_path / "runs"], tmp_path / "record")
    sums = next((tmp_path / "record").rglob("SHA256SUMS"))
    sums.rename(tmp_path / "elsewhere")
    if kind == "folder":
        sums.mkdir()
    elif kind == "link":
        sums.symlink_to(tmp_path / "elsewhere")
    (warning,) = read_records([tmp_path / "record"]).warnings
    assert warning.startswith(f"{sums}: {'is missing' if kind == 'missing' else 'cannot be read'}")


DAMAGE: dict[str, tuple[str, Callable[[str], str], str]] = {
    "short line": ("runs.csv", lambda text: text[:-30], r"runs.csv:2: damaged: \d+ values in \d+ columns"),
    "merge": ("runs.csv", lambda text: text + "<<<<<<< HEAD\n", "runs.csv:3: damaged: 1 values"),
    "word": ("curves.csv", lambda text: text.replace(",10,", ",ten,"), "curves.csv:2: damaged: 'ten' is not a number"),
    "no header": ("curves.csv", lambda text: "", "curves.csv: damaged: its first line needs target_domain, seed"),
    "no column": ("runs.csv", lambda text: text.replace("seconds", "time"), "its first line needs seconds, each once"),
    "a column twice": ("runs.csv", lambda text: text.replace("seconds", "seed"), "its first line needs seed, seconds"),
    "endless": ("runs.csv", lambda text: text.replace("c0ffee", "c" * 200_000), "runs.csv:.: damaged: field larger"),
    "half a line": ("runs.csv", lambda text: text.replace("c0ffee", "c\rx"), "runs.csv:.: damaged: new-line character"),
    "beyond": ("runs.csv", lambda text: text.replace(",12.0,", f",{'9' * 400},"), "damaged: '999.*' is not a number"),
    "curve beyond": ("curves.csv", lambda text: text.replace(",10,", f",{'9' * 400},"), "damaged: '999.*' is not a"),
    "twice": ("runs.csv", lambda text: text + text.splitlines()[1] + "\n", "runs.csv:3: the same run as .*runs.csv:2"),
    "format": ("experiment.yaml", lambda text: text.replace("format: 2", "format: 1"), "not a record of format 2"),
    "yaml": ("experiment.yaml", lambda text: text + "{", "experiment.yaml: not valid YAML"),
    "domain": (
        "experiment.yaml",
        lambda text: text.replace("t: digits_mini", "t: pacs"),
        "'pen' is not a domain of pacs",
    ),
    "share": ("runs.csv", lambda text: text.replace(",0.8,", ",8,"), "damaged: top1 is"),
    "stray": ("curves.csv", lambda text: text.replace("pen,", "print,"), "target print, seed 1: no such run in runs"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_record_is_named_and_never_overwritten(name: str, run: Callable[..., Path], tmp_path: Path) -> None:
    file, damage, words = DAMAGE[name]
    run(80)
    collect([tmp_path / "runs"], tmp_path / "record")
    path = next((tmp_path / "record").rglob(file))
    path.write_text(damage(path.read_text()), newline="")
    sign(path.parent)
    before = content(tmp_path / "record")
    records = read_records([tmp_path / "record"])
    assert records.runs.empty
    assert len(records.warnings) == 1
    with pytest.raises(UserError, match=words):
        collect([tmp_path / "runs"], tmp_path / "record")
    assert content(tmp_path / "record") == before


def test_a_record_cannot_write_outside_its_folder(run: Callable[..., Path], tmp_path: Path) -> None:
    run(80)
    collect([tmp_path / "runs"], tmp_path / "record")
    path = next((tmp_path / "record").rglob("experiment.yaml"))
    path.write_text(path.read_text().replace("variant: ''", "variant: /../../../../x"))
    sign(path.parent)
    collected = collect([tmp_path / "record"], tmp_path / "a" / "b")
    assert "damaged: variant is '/../../../../x'" in collected.warnings[0]
    assert not (tmp_path / "a").exists()


def test_a_record_contains_no_formulas(run: Callable[..., Path], tmp_path: Path) -> None:
    folder = run(80, more={"=1+1": 0.5, "group": 1.0, "seed": 3})
    (folder / "environment.json").write_text(json.dumps({"git": "@SUM(A1)", "device": "-x"}))
    collect([tmp_path / "runs"], tmp_path / "record")
    cells = [
        cell
        for file in (tmp_path / "record").rglob("*.csv")
        for line in file.read_text().splitlines()
        for cell in line.split(",")
    ]
    assert [cell for cell in cells if cell.startswith(("=", "@", "+", "-x"))] == []
    assert "'=1+1" in cells
    (source,) = read_records([tmp_path / "record"]).runs["source"]
    assert source.read_environment()["git"] == "@SUM(A1)"
    assert source.read_metrics()[0]["=1+1"] == 0.5
    built = build([tmp_path / "record"], ["summary"], (), "last")
    assert len(built.results.evaluations) == 3


def test_a_folder_of_runs_is_refused_as_a_record(run: Callable[..., Path], tmp_path: Path) -> None:
    run(80)
    before = content(tmp_path)
    with pytest.raises(UserError, match=r"contains runs, such as .*seed1; choose a folder for records alone"):
        collect([tmp_path / "runs"], tmp_path)
    assert content(tmp_path) == before


def test_check_detects_edited_tables(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    collect([tree], tmp_path / "record")
    monkeypatch.chdir(tmp_path)
    words = ("record", "--out", "out", "--tables", "summary,statistics")
    assert make_tables(monkeypatch, *words, "--check") == 2
    assert "out/tables.md: No such file or directory; write it with the same command" in capsys.readouterr().err
    assert make_tables(monkeypatch, *words) == 0
    before = content(tmp_path / "out")
    assert make_tables(monkeypatch, *words, "--check") == 0
    assert content(tmp_path / "out") == before
    file = tmp_path / "out/csv/summary.csv"
    file.write_text(file.read_text().replace("75.75", "75.75000000000001"))
    assert make_tables(monkeypatch, *words, "--check") == 0
    file.write_text(file.read_text().replace("75.75", "75.76"))
    capsys.readouterr()
    assert make_tables(monkeypatch, *words, "--check") == 2
    assert "out/csv/summary.csv:" in capsys.readouterr().err


def test_the_command_adds_runs_and_reports_counts(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tree / "digits_mini/10lpc/fixmatch/pen/seed1/result.json").unlink()
    monkeypatch.chdir(tmp_path)
    main(["records", "runs", "--out", "record"])
    assert capsys.readouterr().out == "Added 50 runs to record; already included: 0; unfinished runs skipped: 1\n"
    (tmp_path / "empty").mkdir()
    assert exit_code_of(lambda: main(["records", "empty", "--out", "other"])) == 2
    assert capsys.readouterr().err == "error: empty: no finished runs (0 unfinished)\n"
    assert not (tmp_path / "other").exists()


def test_tables_in_markdown_files_are_built_from_the_named_records(
    run: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for target in ("pen", "texture", "street", "print"):
        for seed, base, gain in ((1, 60, 3), (2, 62, 1)):
            path = run(base, base="fixmatch", target_domain=target, seed=seed)
            run(base + gain, base="fixmatch", plugins=("upcsc",), target_domain=target, seed=seed)
    text = f"before\n<!-- glance: {path.parents[4]} fixmatch,fixmatch_upcsc -->\nold\n<!-- end of table -->\nafter\n"
    page = tmp_path / "page.md"
    page.write_text(text)
    assert make_tables(monkeypatch, "--markdown", "page.md", "--check") == 2
    assert page.read_text() == text
    assert make_tables(monkeypatch, "--markdown", "page.md") == 0
    text_after = page.read_text()
    assert text_after.startswith("before\n<!-- glance: ")
    assert text_after.endswith(" |\n<!-- end of table -->\nafter\n")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text_after.splitlines() if line.startswith("| ")
    ]
    assert rows == [
        ["Method", "accuracy", "gain over the base, 95 % interval", "pairs won"],
        ["FixMatch", "61.0 ± 1.4 [n=2]", "–", "–"],  # noqa: RUF001
        ["FixMatch + UPCSC", "63.0 ± 0.0 [n=2]", rows[2][2], "8 of 8"],
    ]
    assert rows[2][2].startswith("+2.0 (+")
    assert make_tables(monkeypatch, "--markdown", "page.md", "--check") == 0


def test_every_base_with_its_gain_and_the_metrics_of_the_runs_with_the_plugin(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    for target in ("pen", "texture", "street", "print"):
        for base, accuracy in (("fixmatch", 60), ("dash", 70), ("vat", 50)):
            run(accuracy, base=base, target_domain=target, more={"unlabeled/keep_rate": 0.1})
        run(61, base="dash", target_domain=target, seed=2)  # has no counterpart
        more = {"unlabeled/keep_rate": 0.25, "train/upc": 1.25}
        run(59, base="fixmatch", plugins=("upcsc",), target_domain=target, more=more)
        run(72 if target == "pen" else 70, base="dash", plugins=("upcsc",), target_domain=target, more=more)
        run(90, base="dash", plugins=("upcsc",), variant="weight_4", target_domain=target, more=more)
    marker = f"<!-- gains: {tmp_path / 'runs'} upcsc,unlabeled/keep_rate,train/upc -->"
    text = update(f"{marker}\nold\n<!-- end of table -->\n", "page.md")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    assert rows == [
        ["Base", "accuracy", "gain of UPCSC, 95 % interval", "pairs won", "keep rate (%)", "UPC"],
        ["Dash", "65.5 ± 6.4 [n=2]", "+0.5", "1 of 4, 3 ties", "25.0", "1.2"],
        ["FixMatch", "60.0 [n=1]", f"{MINUS}1.0", "0 of 4", "25.0", "1.2"],
        ["VAT", "50.0 [n=1]", *[DASH] * 4],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "pass folders that contain runs or records, or Markdown files with --markdown"),
        (["--markdown", "absent.md"], "absent.md: cannot be read: no such file"),
        (["--markdown", "glimpse.md"], "unknown table 'glanse'; did you mean 'glance'"),
        (["--markdown", "empty.md"], "nowhere"),
        (["--markdown", "unknown.md"], "no finished runs of 'fixmtch'; did you mean 'fixmatch'"),
    ],
)
def test_an_invalid_markdown_file_is_an_error_in_one_line(
    words: list[str],
    message: str,
    run: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = run(60, base="fixmatch").parents[4]
    marked = {"glimpse": ("glanse", runs, "fixmatch"), "empty": ("glance", "nowhere", "fixmatch")}
    for name, (kind, folder, methods) in {**marked, "unknown": ("glance", runs, "fixmtch")}.items():
        (tmp_path / f"{name}.md").write_text(f"<!-- {kind}: {folder} {methods} -->\n<!-- end of table -->\n")
    assert make_tables(monkeypatch, *words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
