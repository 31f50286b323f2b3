"""``ssdg tables`` as a user calls it, and on a thousand runs."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from semilearn_ext.__main__ import main
from semilearn_ext.errors import exit_code_of
from semilearn_ext.registry import DATASETS
from semilearn_ext.report.build import TABLES, build
from semilearn_ext.report.methods import MethodId
from semilearn_ext.report.records import read_records
from semilearn_ext.settings import Settings
from tests.report.write_run import write_run

Tables = Callable[..., tuple[str, str]]
METHODS = (("erm", ()), ("fixmatch", ()), ("fixmatch", ("upcsc",)), ("freematch", ()), ("freematch", ("upcsc",)))


def write_many(root: Path, seeds: int = 5, labels: tuple[int, ...] = (10, 5)) -> int:
    """All methods, benchmarks and targets: 1,000 runs of 20 evaluations with five seeds."""
    count = 0
    for dataset in DATASETS:
        for number, (base, plugins) in enumerate(METHODS):
            for lpc, target, seed in itertools.product(labels, dataset.domains, range(1, seeds + 1)):
                fields = {"dataset": dataset.name, "base": base, "plugins": plugins, "labels_per_class": lpc}
                accuracy = 50 + seed + 2 * number
                write_run(root, accuracy, **fields, target_domain=target, seed=seed, epochs=range(1, 21))
                count += 1
    return count


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tables:
    """Run ``ssdg tables`` in ``tmp_path``, successfully, and return its output and errors."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["ssdg", "tables", *arguments])
        assert exit_code_of(main) == 0, capsys.readouterr().err
        output, errors = capsys.readouterr()
        return output, errors

    return run


def test_all_formats_and_the_command_in_each_file(tables: Tables, tmp_path: Path) -> None:
    write_many(tmp_path / "runs", seeds=1, labels=(10,))
    (tmp_path / "runs/pacs/10lpc/erm/photo/seed1/result.json").write_text("{")
    (tmp_path / "runs/pacs/10lpc/erm/sketch/seed1/result.json").unlink()
    output, errors = tables("runs", "--compare", "fixmatch,erm")
    assert output.startswith("## Comparison: FixMatch, ERM (`compare`)")
    assert output.endswith("Wrote tables/tables.md, tables/csv, tables/latex, tables/page.html\n")
    assert "warning: runs/pacs/10lpc/erm/photo/seed1/result.json: cannot be read" in errors
    assert "1 run is unfinished and not in any table" in errors
    assert "ablation: no runs for this table; left out" in errors
    written = sorted(path for path in (tmp_path / "tables").rglob("*") if path.is_file())
    built = {path.relative_to(tmp_path / "tables").as_posix() for path in written}
    names = {"gains", "summary", "by_target", "statistics", "label_10", "observation", "compare", "compare_statistics"}
    latex = {f"latex/{name}.tex" for name in (*names, "all")}
    assert built == {"tables.md", "page.html", *latex, *(f"csv/{name}.csv" for name in (*names, "runs"))}
    for path in written:
        assert "ssdg tables runs --compare fixmatch,erm" in path.read_text(encoding="utf-8"), path


def test_one_table_in_one_format(tables: Tables, tmp_path: Path) -> None:
    write_many(tmp_path / "runs", seeds=1, labels=(10,))
    words = ("runs", "--out", "here", "--tables", "label_10", "--format", "csv", "--protocol", "oracle")
    output, _ = tables(*words)
    assert sorted(path.name for path in (tmp_path / "here").rglob("*.*")) == ["label_10.csv", "runs.csv"]
    assert "an upper bound, never a result" in output


def test_tables_of_an_earlier_command_are_named_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", 50)
    monkeypatch.chdir(tmp_path)
    main(["tables", "runs", "--tables", "summary,by_target"])
    (tmp_path / "tables" / "csv" / "mine.csv").write_text("a,b\n1,2\n")
    assert "earlier command" not in capsys.readouterr().err
    main(["tables", "runs", "--tables", "summary", "--format", "csv,latex"])
    assert "left over from an earlier command, not updated: tables/tables.md, tables/csv/by_target.csv, " in (
        errors := capsys.readouterr().err
    )
    assert "tables/latex/by_target.tex, tables/page.html\n" in errors
    assert "mine.csv" not in errors
    assert "summary.csv" not in errors
    assert (tmp_path / "tables" / "csv" / "by_target.csv").exists()


@pytest.mark.parametrize("name", ["csv", "latex"])
def test_nothing_is_written_through_a_link(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", 50)
    for folder in ("out", "private"):
        (tmp_path / folder).mkdir()
    (tmp_path / "out" / name).symlink_to(tmp_path / "private")
    monkeypatch.chdir(tmp_path)
    assert exit_code_of(lambda: main(["tables", "runs", "--out", "out"])) == 2
    assert f"--out: out/{name}: is a symbolic link, which is not followed when writing" in capsys.readouterr().err
    assert list((tmp_path / "private").iterdir()) == []


def test_one_markdown_file(tables: Tables, tmp_path: Path) -> None:
    write_many(tmp_path / "runs", seeds=1, labels=(10,))
    tables("runs", "--out", "here/mine.md", "--tables", "summary")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["mine.md"]
    assert "## All runs" in (tmp_path / "here" / "mine.md").read_text()


def test_every_run_is_in_a_file(tables: Tables, tmp_path: Path) -> None:
    """The tables can be rebuilt from it; here, one mean is computed by hand."""
    count = write_many(tmp_path / "runs", seeds=2, labels=(5,))
    tables("runs", "--format", "csv")
    table = pd.read_csv(tmp_path / "tables" / "csv" / "runs.csv", comment="#")
    assert len(table) == count
    summary = pd.read_csv(tmp_path / "tables" / "csv" / "summary.csv", comment="#").set_index(["dataset", "method"])
    runs = table[(table["dataset"] == "pacs") & (table["method"] == "fixmatch")]
    assert 100 * runs["last"].mean() == pytest.approx(summary.loc[("pacs", "fixmatch"), "mean"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "nowhere: no such folder"),
        (("runs", "--tables", "label_11"), "--tables: unknown 'label_11'; did you mean 'label_10'?"),
        (("runs", "--format", "pdf"), "--format: unknown 'pdf' (known: md, csv, latex, html)"),
        (("runs", "--compare", "fixmatch"), "--compare: expected at least two methods, as in A,B, got only fixmatch"),
        (("runs", "--compare", "fixmatch,uda"), "--compare: no finished runs of 'uda'"),
        (("runs", "--tables", "ablation"), "ablation: no runs for this table"),
        (("empty",), "empty: no finished runs"),
        (
            ("runs", "--metric", "unlabelled/top1"),
            "--metric: no run recorded 'unlabelled/top1' (recorded: source_val/top1, target/top1, "
            "unlabeled/inclusion_rate, unlabeled/top1, unlabeled/uus_rate)",
        ),
        (
            ("runs", "--metric", "unlabeled/top1", "--protocol", "oracle"),
            "--protocol: unlabeled/top1 is recorded only at",
        ),
        (("runs", "--out", "file", "--format", "md"), "--out: file: cannot be written"),
        (("runs", "--out", "a.md", "--format", "csv"), "--format: csv cannot be written to the single file a.md"),
    ],
)
def test_an_error_is_printed_in_one_line(
    arguments: tuple[str, ...],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_many(tmp_path / "runs", seeds=1, labels=(10,))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["semilearn_ext", "tables", *arguments])
    assert exit_code_of(main) == 2
    errors = capsys.readouterr().err
    assert words in errors
    assert len(errors.splitlines()) == 1
    assert not (tmp_path / "tables").exists()


def test_torch_is_not_imported(tmp_path: Path) -> None:
    write_many(tmp_path / "runs", seeds=1, labels=(10,))
    code = (
        "import sys; from semilearn_ext.__main__ import main; "
        "sys.argv = ['semilearn_ext', 'tables', 'runs']; main(); "
        "print(sorted({'torch', 'torchvision', 'semilearn', 'matplotlib'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert process.stdout.splitlines()[-1] == "[]"


def test_tables_of_a_thousand_runs(tmp_path: Path) -> None:
    assert write_many(tmp_path) == 1000
    built = build([tmp_path], TABLES, (), "last")
    assert len(built.results.runs) == 1000
    assert built.warnings == []
    cells = built.results.cells
    assert len(cells) == 50
    assert set(cells["n"]) == {5}
    upcsc = cells[cells["method"] == MethodId("fixmatch", ("upcsc",))]
    assert list(upcsc["mean"]) == pytest.approx([57.0] * 10)
    assert list(upcsc["change"]) == pytest.approx([2.0] * 10)


def test_the_results_of_a_real_run_are_read(tiny: Callable[..., Settings], tmp_path: Path) -> None:
    from semilearn_ext import training

    result = training.run(tiny(num_train_iter=2, num_eval_iter=1)).result
    records = read_records([tmp_path / "runs"])
    assert records.warnings == []
    assert records.runs.loc[0, "last"] == result["top1"]["last"]
    built = build([tmp_path / "runs"], ["by_target"], (), "last")
    assert built.warnings == []
    assert built.results.evaluations["target/top1"].iloc[-1] == pytest.approx(result["top1"]["last"], abs=1e-4)
