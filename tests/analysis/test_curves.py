"""Curves from runs' records, without training and without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from semilearn_ext.analysis import curves
from semilearn_ext.analysis.finished import find_runs
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import config_hash, dump, settings_from

RISE = {"fixmatch": 0.1, "fixmatch_upc": 0.15, "fixmatch_upcsc": 0.2}


def write_run(save_dir: Path, **values: Any) -> RunFolder:
    """A finished run's records: accuracy rises with the epoch, by method, and a little with the seed."""
    settings = settings_from(save_dir=str(save_dir), **values)
    folder = RunFolder(run_path(settings))
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(dump(settings))
    for epoch in (1, 2, 3):
        accuracy = RISE[settings.algorithm] * epoch + 0.01 * settings.seed
        folder.append_metrics({"iteration": epoch, "epoch": float(epoch), "unlabeled/top1": accuracy})
    folder.result_file.write_text(json.dumps({"config_hash": config_hash(settings), "iterations": 3}))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for algorithm in RISE:
        for target in ("pen", "street"):
            for seed in (1, 2, 3):
                write_run(tmp_path / "runs", algorithm=algorithm, target_domain=target, seed=seed)
    return tmp_path / "runs"


def test_lines_are_means_over_seeds_with_their_spread(sweep: Path, tmp_path: Path) -> None:
    said = curves.main(find_runs([sweep]), tmp_path / "figures")
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv")
    assert set(table["target"]) == {"pen", "street", "mean"}
    row = table.query("method == 'fixmatch_upc' and target == 'mean' and epoch == 2").iloc[0]
    assert row["mean"] == pytest.approx(32)
    assert row["std"] == pytest.approx(np.std([31, 32, 33], ddof=1))
    assert row["seeds"] == 3
    assert "fixmatch_upcsc   mean" in said
    for ending in ("png", "pdf"):
        assert (tmp_path / "figures" / f"curves_digits_mini_10lpc.{ending}").stat().st_size > 5000


def test_a_seed_without_a_target_is_left_out_of_the_mean_and_said(sweep: Path, tmp_path: Path) -> None:
    write_run(sweep, algorithm="fixmatch", target_domain="pen", seed=4)
    said = curves.main(find_runs([sweep]), tmp_path / "figures")
    assert "fixmatch, seed 4: not in the mean, without street" in said
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv").query("method == 'fixmatch'")
    assert table.query("target == 'mean'")["seeds"].unique().tolist() == [3]
    assert table.query("target == 'pen'")["seeds"].unique().tolist() == [4]


def test_one_seed_of_one_target_has_no_spread_and_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", algorithm="fixmatch", target_domain="pen")
    curves.main(find_runs([tmp_path]), tmp_path / "figures")
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv")
    assert set(table["target"]) == {"pen"}
    assert table["std"].isna().all()


def test_what_has_no_mean_is_refused(sweep: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "again", algorithm="fixmatch", target_domain="pen", seed=1)
    with pytest.raises(UserError, match="the same run twice"):
        curves.main(find_runs([sweep, tmp_path / "again"]), tmp_path / "figures")
    write_run(tmp_path / "longer", algorithm="fixmatch", target_domain="pen", seed=5, epoch=40)
    with pytest.raises(UserError, match="both are called fixmatch but have other settings; give one of them a --var"):
        curves.main(find_runs([sweep, tmp_path / "longer"]), tmp_path / "figures")
    write_run(tmp_path / "fewer", algorithm="fixmatch", target_domain="pen", seed=5, labels_per_class=5)
    with pytest.raises(UserError, match="the number of labels a class differs"):
        curves.main(find_runs([sweep, tmp_path / "fewer"]), tmp_path / "figures")
    assert not (tmp_path / "figures").exists()


def test_the_command_does_without_torch(sweep: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from semilearn_ext.__main__ import main\n"
        f"sys.argv = ['semilearn_ext', 'analyse', 'curves', {str(sweep)!r}, '--out', {str(tmp_path / 'figures')!r}]\n"
        "main(); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_same_records_give_the_same_bytes(sweep: Path, tmp_path: Path) -> None:
    runs = find_runs([sweep])
    for folder in ("one", "two"):
        curves.main(runs, tmp_path / folder)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
