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
from semilearn_ext.errors import UserError
from semilearn_ext.report.collect import collect
from semilearn_ext.report.metrics import Metric
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.result import summarise
from semilearn_ext.settings import dump, settings_from

ACCURACY = Metric("unlabeled/top1")
RISE = {"fixmatch": 0.1, "fixmatch_upc": 0.15, "fixmatch_upcsc": 0.2}


def write_run(save_dir: Path, **values: Any) -> RunFolder:
    """A finished run's records: accuracy rises with the epoch, by method, and a little with the seed."""
    settings = settings_from(save_dir=str(save_dir), **values)
    folder = RunFolder(run_path(settings))
    folder.path.mkdir(parents=True)
    folder.config_file.write_text(dump(settings))
    for epoch in (1, 2, 3):
        accuracy = RISE[settings.algorithm] * epoch + 0.01 * settings.seed
        measured = {"unlabeled/top1": accuracy, "target/top1": accuracy, "source_val/top1": accuracy}
        folder.append_metrics({"iteration": epoch, "epoch": float(epoch), **measured, "train/upc": 2.5, "seconds": 1.0})
    folder.write_split({"train_x": [["a", 0, "print"]]})
    folder.write_environment({"device": "cpu"})
    folder.write_result(summarise(settings, folder.read_metrics(), "reduced"))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for algorithm in RISE:
        for target in ("pen", "street"):
            for seed in (1, 2, 3):
                write_run(tmp_path / "runs", algorithm=algorithm, target_domain=target, seed=seed)
    return tmp_path / "runs"


def test_curves_of_chosen_methods(sweep: Path, tmp_path: Path) -> None:
    curves.main([sweep], tmp_path, ACCURACY, ["fixmatch_upcsc", "fixmatch"])
    table = pd.read_csv(tmp_path / "curves_digits_mini_10lpc.csv")
    assert set(table["method"]) == {"fixmatch", "fixmatch_upcsc"}
    with pytest.raises(UserError, match=r"^--methods: no finished runs of 'fixmatch_upcs'; did you mean"):
        curves.main([sweep], tmp_path, ACCURACY, ["fixmatch_upcs"])


def test_lines_are_means_over_seeds_with_their_spread(sweep: Path, tmp_path: Path) -> None:
    output = curves.main([sweep], tmp_path / "figures", ACCURACY)
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv")
    assert set(table["target"]) == {"pen", "street", "mean"}
    row = table.query("method == 'fixmatch_upc' and target == 'mean' and epoch == 2").iloc[0]
    assert row["mean"] == pytest.approx(32)
    assert row["std"] == pytest.approx(np.std([31, 32, 33], ddof=1))
    assert row["seeds"] == 3
    assert "fixmatch_upcsc   mean" in output
    for ending in ("png", "pdf"):
        assert (tmp_path / "figures" / f"curves_digits_mini_10lpc.{ending}").stat().st_size > 5000


def test_a_seed_without_a_target_is_left_out_of_the_mean_and_named(sweep: Path, tmp_path: Path) -> None:
    write_run(sweep, algorithm="fixmatch", target_domain="pen", seed=4)
    output = curves.main([sweep], tmp_path / "figures", ACCURACY)
    assert "FixMatch, seed 4: not in the mean, because there is no run on street" in output
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv").query("method == 'fixmatch'")
    assert table.query("target == 'mean'")["seeds"].unique().tolist() == [3]
    assert table.query("target == 'pen'")["seeds"].unique().tolist() == [4]


def test_one_seed_of_one_target_has_no_spread_and_no_mean(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", algorithm="fixmatch", target_domain="pen")
    curves.main([tmp_path], tmp_path / "figures", ACCURACY)
    table = pd.read_csv(tmp_path / "figures" / "curves_digits_mini_10lpc.csv")
    assert set(table["target"]) == {"pen"}
    assert table["std"].isna().all()


def test_any_metric_can_be_drawn(sweep: Path, tmp_path: Path) -> None:
    output = curves.main([sweep], tmp_path, Metric("train/upc"))
    assert output.startswith("UPC on training batches, digits_mini, 10 labels per class, last epoch")
    table = pd.read_csv(tmp_path / "curves_digits_mini_10lpc_train_upc.csv")
    assert table["mean"].unique().tolist() == [2.5]
    with pytest.raises(
        UserError, match=r"no run recorded 'train/ucp' \(recorded: source_val/top1, target/top1, train/"
    ):
        curves.main([sweep], tmp_path, Metric("train/ucp"))


def test_panels_share_their_scale_and_say_what_they_show(sweep: Path) -> None:
    write_run(sweep, algorithm="fixmatch_upc", target_domain="print", seed=1)
    points, _ = curves.read_points(curves.read_runs([sweep])[0], ACCURACY)
    table, _ = curves.average(points, ["pen", "street", "print"])
    figure = curves.draw(table, ["pen", "street", "print"], ACCURACY)
    axes = figure.axes
    assert [axis.get_title() for axis in axes] == ["target: pen", "target: street", "target: print"]
    assert len({axis.get_ylim() for axis in axes}) == 1
    assert figure.get_supylabel() == "accuracy on unlabelled source images (%)"
    # A method has the same colour in every panel, also where others were not run.
    colours = [{line.get_label(): line.get_color() for line in axis.lines} for axis in axes]
    assert list(colours[2]) == ["FixMatch + UPC"]
    assert colours[0]["FixMatch + UPC"] == colours[2]["FixMatch + UPC"]
    assert [text.get_text() for text in figure.legends[0].texts] == [
        "FixMatch [n=3]",
        "FixMatch + UPC [n=3]",
        "FixMatch + UPCSC [n=3]",
    ]
    assert figure.legends[0].get_title().get_text() == "mean and standard deviation over seeds"


def test_at_most_six_methods_are_drawn_unless_others_are_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["fixmatch_upc", "fixmatch_sc", "fixmatch_fbcsa", "fixmatch", "fixmatch_upcsc"]
    names += ["freematch_upc", "freematch_sc", "freematch", "freematch_upcsc"]
    for name in names:
        monkeypatch.setitem(RISE, name, 0.1)
        write_run(tmp_path / "runs", algorithm=name, target_domain="pen", seed=1)
    output = curves.main([tmp_path / "runs"], tmp_path, ACCURACY)
    drawn = list(dict.fromkeys(pd.read_csv(tmp_path / "curves_digits_mini_10lpc.csv")["method"]))
    assert len(drawn) == 6
    assert {"fixmatch", "fixmatch_upcsc", "freematch", "freematch_upcsc"} <= set(drawn)
    (line,) = [line for line in output.splitlines() if line.startswith("Not drawn")]
    assert set(line.rpartition(": ")[2].split(",")) == set(names) - set(drawn)
    curves.main([tmp_path / "runs"], tmp_path, ACCURACY, names)
    runs, _ = curves.read_runs([tmp_path / "runs"])
    points, _ = curves.read_points(runs, ACCURACY)
    table, _ = curves.average(points, ["pen"])
    lines = curves.draw(table, ["pen"], ACCURACY).axes[0].lines
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == len(names) == 9


def test_a_result_of_another_format_is_named_and_left_out(sweep: Path, tmp_path: Path) -> None:
    outdated = write_run(sweep, algorithm="fixmatch", target_domain="pen", seed=9).result_file
    outdated.write_text(json.dumps({**json.loads(outdated.read_text()), "format": 1}))
    text = curves.main([sweep], tmp_path, ACCURACY)
    assert f"{outdated}: not a result of format 2; train the run again with --overwrite; left out" in text
    assert pd.read_csv(tmp_path / "curves_digits_mini_10lpc.csv")["seeds"].max() == 3
    with pytest.raises(UserError, match="not a result of format 2"):
        curves.main([outdated.parent], tmp_path, ACCURACY)


def test_runs_that_cannot_be_averaged_are_refused(sweep: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "again", algorithm="fixmatch", target_domain="pen", seed=1)
    with pytest.raises(UserError, match="both are the same run"):
        curves.main([sweep, tmp_path / "again"], tmp_path / "figures", ACCURACY)
    write_run(tmp_path / "longer", algorithm="fixmatch", target_domain="pen", seed=5, epoch=40)
    with pytest.raises(
        UserError, match="both are runs of FixMatch, but with different settings; train one of them with a --variant"
    ):
        curves.main([sweep, tmp_path / "longer"], tmp_path / "figures", ACCURACY)
    write_run(tmp_path / "fewer", algorithm="fixmatch", target_domain="pen", seed=5, labels_per_class=5)
    with pytest.raises(UserError, match="the number of labels per class differs"):
        curves.main([sweep, tmp_path / "fewer"], tmp_path / "figures", ACCURACY)
    assert not (tmp_path / "figures").exists()


def test_the_command_does_not_import_torch(sweep: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from semilearn_ext.__main__ import main\n"
        f"sys.argv = ['semilearn_ext', 'analyse', 'curves', {str(sweep)!r}, '--out', {str(tmp_path / 'figures')!r}]\n"
        "main(); print('torch' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.splitlines()[-1] == "False"


def test_runs_and_their_record_give_the_same_bytes(sweep: Path, tmp_path: Path) -> None:
    collect([sweep], tmp_path / "record")
    for folder, root in (("one", sweep), ("two", tmp_path / "record")):
        curves.main([root], tmp_path / folder, ACCURACY)
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name
