"""``analyse confusion`` and ``analyse reliability`` on small runs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semilearn_ext.__main__ import parser
from semilearn_ext.analysis.confusion import shares
from semilearn_ext.analysis.details import Panel, read_panels
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.analysis.reliability import join
from semilearn_ext.errors import UserError
from semilearn_ext.report.methods import MethodId
from tests.analysis.conftest import TrainRun

Pair = tuple[FinishedRun, FinishedRun]


def analyse(figure: str, out: Path, *words: object) -> None:
    arguments = parser().parse_args(["analyse", figure, *map(str, words), "--out", str(out)])
    arguments.call(arguments)


def panel(*confusions: list[list[int]]) -> Panel:
    seeds = tuple(range(len(confusions)))
    return Panel(MethodId("fixmatch"), seeds, ("a", "b", "c"), list(confusions), [], ())


def test_shares_are_means_over_seeds_and_not_over_images() -> None:
    first, second = [[1, 1, 0], [0, 3, 1], [0, 0, 0]], [[90, 0, 10], [0, 4, 0], [0, 0, 0]]
    percent = shares(panel(first, second))
    assert percent[:2].ravel().tolist() == pytest.approx([70, 25, 5, 0, 87.5, 12.5])
    assert np.isnan(percent[2]).all()


def test_bins_are_joined_by_their_images() -> None:
    empty: dict[str, Any] = {"count": 0, "confidence": None, "accuracy": None}
    first = [empty, {"count": 1, "confidence": 0.9, "accuracy": 1.0}]
    second = [empty, {"count": 3, "confidence": 0.7, "accuracy": 0.0}]
    table = join([first, second])
    assert table["images"].tolist() == [0, 4]
    assert table.loc[1, ["from", "to", "confidence", "accuracy"]].tolist() == pytest.approx([0.5, 1, 0.75, 0.25])
    assert np.isnan(table.loc[0, "accuracy"])


def test_two_methods_side_by_side(pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for figure in ("confusion", "reliability"):
        analyse(figure, tmp_path, *(run.path for run in pair), "--images", "unlabeled")
        for ending in ("png", "pdf"):
            assert (tmp_path / f"{figure}_digits_mini_5lpc_pen_unlabeled.{ending}").stat().st_size > 5000
    table = pd.read_csv(tmp_path / "confusion_digits_mini_5lpc_pen_unlabeled.csv", dtype={"true": str})
    assert list(table["method"].unique()) == ["fixmatch", "fixmatch_upcsc"]
    assert len(table) == 2 * 10 * 10
    for run, (_, rows) in zip(pair, table.groupby("method", sort=False), strict=True):
        right = rows[rows["true"] == rows["predicted"].astype(str)]["images"].sum() / rows["images"].sum()
        assert right == pytest.approx(run.result["metrics"]["unlabeled/top1"])
        np.testing.assert_allclose(rows.groupby("true")["percent"].sum(), 100, rtol=1e-4)
    bins = pd.read_csv(tmp_path / "reliability_digits_mini_5lpc_pen_unlabeled.csv")
    first = bins[bins["method"] == "fixmatch"].dropna()
    error = (first["images"] * (first["accuracy"] - first["confidence"]).abs()).sum() / first["images"].sum()
    assert error == pytest.approx(pair[0].result["metrics"]["unlabeled/ece"], rel=1e-4)
    assert "FixMatch (seed 1): expected calibration error" in capsys.readouterr().out


def test_seeds_of_one_method_are_one_panel(train_run: TrainRun) -> None:
    (panel,) = read_panels([train_run(seed=3), train_run(seed=2)], "target")
    assert panel.seeds == (2, 3)
    assert panel.title == "FixMatch (mean of seeds 2, 3)"


def test_invalid_requests_are_refused(train_run: TrainRun, tmp_path: Path) -> None:
    base = train_run(seed=2)
    with pytest.raises(UserError, match="at most 2 methods, got 3: fixmatch, supervised, fixmatch_upcsc"):
        read_panels(
            [base, train_run(algorithm="supervised", seed=2), train_run(algorithm="fixmatch_upcsc", seed=2)], "target"
        )
    with pytest.raises(UserError, match="did not measure unlabelled source images"):
        analyse("confusion", tmp_path, train_run(algorithm="supervised", seed=2).path, "--images", "unlabeled")
    with pytest.raises(UserError, match="the target domain differs"):
        read_panels([base, train_run(target_domain="street", seed=2)], "target")
    incomplete = train_run(seed=7)
    incomplete.folder.details_file.unlink()
    with pytest.raises(UserError, match=r"did not record details.json; train it again"):
        read_panels([incomplete], "target")
    shutil.rmtree(incomplete.path)  # other tests read all runs below the common folder


def test_the_figures_do_not_import_torch() -> None:
    code = "import sys; from semilearn_ext.analysis import confusion, reliability; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
