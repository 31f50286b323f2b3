"""The gain of a plug-in by base, from runs whose gains are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from semilearn_ext.analysis import gains
from semilearn_ext.errors import UserError
from semilearn_ext.report.collect import collect
from semilearn_ext.report.statistics import paired_gain, stratified_interval
from tests.report.write_run import domains, write_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """UPCSC adds 2 to FixMatch on every target, up to 0.5 by seed; subtracts 3 from SoftMatch; UDA has no base."""
    for number, target in enumerate(domains("digits_mini")):
        for seed in (1, 2, 3):
            fields = {"target_domain": target, "seed": seed}
            write_run(tmp_path / "runs", 70 + number, **fields)
            write_run(tmp_path / "runs", 72 + number + (seed - 2) / 2, plugins=("upcsc",), **fields)
            write_run(tmp_path / "runs", 80, base="softmatch", **fields)
            write_run(tmp_path / "runs", 77, base="softmatch", plugins=("upcsc",), **fields)
            write_run(tmp_path / "runs", 60, base="uda", plugins=("upcsc",), **fields)
    return tmp_path / "runs"


def test_table_and_figure(runs: Path, tmp_path: Path) -> None:
    output = gains.main([runs], tmp_path / "one", "upcsc")
    table = pd.read_csv(tmp_path / "one" / "gains_upcsc_digits_mini_10lpc.csv").set_index("base")
    assert list(table.index) == ["fixmatch", "softmatch"]
    assert table.loc["fixmatch", "gain"] == pytest.approx(2)
    assert table.loc["fixmatch", "base_mean"] == pytest.approx(71.5)
    assert 1.5 <= table.loc["fixmatch", "low"] < 2 < table.loc["fixmatch", "high"] <= 2.5
    assert table.loc["softmatch", ["gain", "low", "high", "wins"]].tolist() == pytest.approx([-3, -3, -3, 0])
    assert table.loc["fixmatch", ["wins", "ties", "pairs", "seeds"]].tolist() == [12, 0, 12, 3]
    assert "UDA + UPCSC (digits_mini, 10 labels per class): there are no runs of UDA" in output
    for ending in ("png", "pdf"):
        assert (tmp_path / "one" / f"gains_upcsc_digits_mini_10lpc.{ending}").stat().st_size > 5000
    collect([runs], tmp_path / "record")
    gains.main([tmp_path / "record"], tmp_path / "two", "upcsc")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_run_without_counterpart_is_in_neither_mean(runs: Path, tmp_path: Path) -> None:
    write_run(runs, 10, target_domain=domains("digits_mini")[0], seed=4)
    gains.main([runs], tmp_path / "one", "upcsc")
    table = pd.read_csv(tmp_path / "one" / "gains_upcsc_digits_mini_10lpc.csv").set_index("base")
    assert table.loc["fixmatch", ["base_mean", "mean", "gain"]].tolist() == pytest.approx([71.5, 73.5, 2])


def test_variants_come_after_the_plugin_itself_and_ties_are_counted(runs: Path, tmp_path: Path) -> None:
    for target in domains("digits_mini"):
        fields = {"target_domain": target, "base": "softmatch", "plugins": ("upcsc",), "variant": "weight_12"}
        write_run(runs, 80 + 10 * (target == "pen"), **fields)
    output = gains.main([runs], tmp_path / "one", "upcsc")
    table = pd.read_csv(tmp_path / "one" / "gains_upcsc_digits_mini_10lpc.csv")
    assert list(table["method"]) == ["fixmatch_upcsc", "softmatch_upcsc", "softmatch_upcsc--weight_12"]
    assert table.loc[2, ["gain", "wins", "ties", "pairs", "seeds"]].tolist() == pytest.approx([2.5, 1, 3, 4, 1])
    assert np.isnan(table.loc[2, "low"])
    assert "SoftMatch, UPCSC (weight 12)" in output
    assert "1 of 4, 3 ties" in output


def test_the_figure_shows_which_gains_have_an_interval_and_how_many_seeds(runs: Path, tmp_path: Path) -> None:
    for target in domains("digits_mini"):
        write_run(runs, 60, target_domain=target, base="uda")
    table, _ = gains.gains(gains.build([runs], (), (), "last").results, "upcsc")
    figure = gains.draw(table, "UPCSC", "digits_mini")
    (axis,) = figure.axes
    assert [label.get_text() for label in axis.get_yticklabels()] == [
        "FixMatch (71.5, n=3)",
        "UDA (60.0, n=1)",
        "SoftMatch (80.0, n=3)",
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "95 % interval above 0",
        "95 % interval below 0",
        "too few seeds for an interval",
    ]


def test_a_plugin_without_runs(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"with and without dgwm \(plug-ins with runs: upcsc\)"):
        gains.main([runs], tmp_path / "figures", "dgwm")
    assert not (tmp_path / "figures").exists()


def test_the_interval_is_stratified_by_target() -> None:
    """Large differences between targets do not widen it, because the seeds of each target are resampled separately."""
    low, high = stratified_interval([np.array([10.0, 10.0]), np.array([-10.0, -10.0])])
    assert (low, high) == (0, 0)
    first, second = np.array([0.0, 1.0]), np.array([5.0, 5.0])
    assert stratified_interval([first, second]) == (2.5, 3.0)
    assert np.isnan(stratified_interval([first, np.array([1.0])])).all()


def test_pairs_by_target_and_seed() -> None:
    with_plugin = pd.DataFrame({"target": list("aab"), "seed": [1, 2, 1], "value": [3.0, 5.0, 1.0]})
    base = pd.DataFrame({"target": list("aabb"), "seed": [1, 2, 1, 2], "value": [2.0, 2.0, 2.0, 9.0]})
    gain = paired_gain(with_plugin, base)
    assert (gain.mean, gain.wins, gain.pairs, gain.targets) == (0.5, 2, 3, 2)
