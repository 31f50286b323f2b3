"""``ssdg reproduce`` plans the paper's rows and writes tables; ``ssdg claims`` lists what was run for each claim."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.__main__ import main
from semilearn_ext.commands import sweep
from semilearn_ext.errors import UserError
from semilearn_ext.report import paper_numbers, paper_runs
from semilearn_ext.report.methods import MethodId
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings.config_files import config_dir
from semilearn_ext.settings.scale import PAPER, scale_of
from tests.report.write_run import domains, write_run


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_plan_has_every_row_of_the_paper(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    main(["reproduce", "pacs", "--dry_run"])
    lines = capsys.readouterr().out.splitlines()
    rows = [line for line in lines if line.strip().startswith(("10 ", "5 "))]
    assert len(rows) == len(paper_numbers.rows("pacs")) == 37
    assert any("StyleMatch + UPCSC (avg proxy)" in row for row in rows)
    (total,) = [line.split() for line in lines if line.strip().startswith("total")]
    assert total[1:3] == ["740", "0"]
    assert "Rate of FixMatch: 2,800 images per second, assumed for one GPU, not measured" in lines[-1]
    hours = {row.rpartition(" 20 ")[0].split(maxsplit=1)[1].strip(): float(row.split()[-1]) for row in rows}
    assert hours["ERM"] < hours["FixMatch"] < hours["FixMatch + UPCSC"] < hours["StyleMatch"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dataset", paper_numbers.dataset_order())
def test_every_run_is_at_the_papers_scale(dataset: str) -> None:
    runs = paper_runs.paper_experiments(dataset, [], [1], {})
    assert len(runs) == 4 * len(paper_numbers.rows(dataset))
    firsts = {(settings.method, settings.labels_per_class): settings for settings in runs.values()}
    assert {scale_of(settings) for settings in firsts.values()} == {PAPER}
    steps = {settings.base: settings.step for settings in runs.values()}
    expected = {"erm": "reference", "fixmatch": "reference", "stylematch": "reference"}
    assert steps == {**expected, "meanteacher": "usb", "freematch": "usb"}


def test_images_and_hours_equal_a_calculation_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    """PACS without sketch: photo is the smallest domain, with 1670 images, nine tenths of which are for training."""
    runs = paper_runs.paper_experiments("pacs", [10], [1], {}, ["fixmatch"])
    counts = paper_runs.published_counts("pacs")
    images = {run.target_domain: paper_runs.images_of(run, counts) for run in runs.values()}
    assert images["sketch"] == 20 * (1503 // 16) * 96
    assert images["photo"] == 20 * (1843 // 16) * 96
    (work,) = paper_runs.work_of(runs, [next(iter(runs))], counts, 50.0)
    assert (work.runs, work.done, work.images) == (4, 1, sum(images.values()))
    assert work.seconds == pytest.approx((work.images - images["art_painting"]) / 50)


def test_the_cost_of_a_step_follows_the_documented_passes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "methods.md").read_text(encoding="utf-8")
    table = text.split("| Method | with gradient | without |")[1].split("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[2:]]
    documented = {name.strip(): (int(row[2]), int(row[3])) for row in rows for name in row[1].split(",")}
    runs = paper_runs.paper_experiments("pacs", [10], [1], {})
    costs = {MethodId(run.base, run.plugins, run.variant).title: paper_runs.cost_of(run) for run in runs.values()}
    for name, (with_gradient, without) in documented.items():
        style = 96 * paper_runs.STYLE_VIEW if name.startswith("StyleMatch") else 0
        assert costs[name] == pytest.approx((3 * with_gradient + without + style) / (3 * 144 + 96)), name


def test_the_rate_of_finished_runs_on_a_gpu_is_used(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = paper_runs.paper_experiments("pacs", [10], [1], {}, ["fixmatch"])
    fields = {"dataset": "pacs", "iterations": 1000, "seconds": 480.0, "target_domain": "photo"}
    folder = RunFolder(write_run(tmp_path / "runs", 70, **fields))
    assert folder.path == tmp_path / next(path for path in runs if path.parts[-2] == "photo")
    done = [path for path in runs if path.parts[-2] == "photo"]
    assert paper_runs.measured_rate(runs, done) is None
    folder.write_environment({"device": "cuda:0 (NVIDIA X)"})
    assert paper_runs.measured_rate(runs, done) == (200.0, "measured on 1 finished runs on NVIDIA X")


def test_runs_become_records_and_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The launcher is that of a sweep and is tested there; in this test it writes finished runs."""

    def launch(arguments: Any, plan: sweep.Plan) -> None:
        for job in plan.jobs:
            settings = plan.settings[job.folder]
            fields = {"base": settings.base, "plugins": settings.plugins, "target_domain": settings.target_domain}
            write_run(
                tmp_path / "runs", 70 + len(settings.plugins), **fields, labels_per_class=settings.labels_per_class
            )
        raise UserError("1 of 9 runs failed")

    monkeypatch.setattr(sweep, "launch", launch)
    words = ["reproduce", "digits_mini", "--methods", "fixmatch,fixmatch_upcsc", "--seeds", "1"]
    with pytest.raises(UserError, match="1 of 9 runs failed"):
        main(words)
    text = (tmp_path / "results/digits_mini/tables.md").read_text()
    assert "Generated by `ssdg tables results/digits_mini/records --out results/digits_mini`." in text
    assert "71.0 (+1.0)" in text
    assert len(list((tmp_path / "results/digits_mini/records").rglob("runs.csv"))) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pacs", "--methods", "fixmatch_upscs"], "--methods: the paper has no row 'fixmatch_upscs' for pacs; did you"),
        (
            ["pacs", "--labels", "7"],
            r"--labels: the paper has no row for pacs with this number of labels .*known: 10, 5",
        ),
        (["pcas"], "pcas"),
    ],
)
def test_invalid_requests_are_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        main(["reproduce", *words, "--dry_run"])


def test_claims_are_written_with_gains_and_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"img_size": 96, "epoch": 3, "net": "resnet18", "pretrain_path": "/my/recalibrated.pth"}
    for seed in (1, 2):
        for target in domains("pacs"):
            fields = {"dataset": "pacs", "target_domain": target, "seed": seed, "config": config}
            write_run(tmp_path / "runs", 70, **fields)
            write_run(tmp_path / "runs", 71 + seed, plugins=["upcsc"], **fields, more={"unlabeled/top1": 0.85})
    main(["claims", "runs"])
    text = (tmp_path / "results/reproduction.md").read_text()
    reduced = "reduced: 96 pixels, not 224; 3 epochs, not 20; weights recalibrated.pth"
    pair = "FixMatch + UPCSC against FixMatch"
    assert f"| PACS, 10 labels per class | {pair} | {reduced} | +2.5 | +2.1 to +2.9 | 8 of 8 | 2 |" in text
    assert f"| PACS, 10 labels per class | {pair} | {reduced} | +5.0 | +5.0 to +5.0 | 8 of 8 | 2 |" in text
    assert f"- {pair}: PACS +2.8, OfficeHome +0.9, DigitsDG +5.6, miniDomainNet +1.5" in text
    section = text.split("with five labels per class")[1].split("\n## ")[0]
    assert "Nothing has been run here yet." in section
    command = next(line for line in text.splitlines() if line.startswith("ssdg reproduce pacs --labels 10 --methods"))
    main([*command.partition("#")[0].split()[1:], "--dry_run", "--save_dir", "elsewhere"])
    hours = float(capsys.readouterr().out.split("total")[1].split()[3])
    assert f"about {hours:.1f} GPU hours" in command
    main(["claims", "runs", "--check"])
    result = json.loads(next((tmp_path / "runs").rglob("fixmatch/*/seed1/result.json")).read_text())
    assert result["title"] == "FixMatch"


def test_claims_do_not_compare_different_training_steps(tmp_path: Path) -> None:
    for target in domains("pacs"):
        fields = {"dataset": "pacs", "target_domain": target}
        write_run(tmp_path / "runs", 70, **fields, config={"step": "usb"})
        write_run(tmp_path / "runs", 75, **fields, plugins=["upcsc"], config={"step": "reference"})
        write_run(tmp_path / "runs", 72, **fields, plugins=["upc"], config={"step": "usb"})
    main(["claims", "runs"])
    text = (tmp_path / "results/reproduction.md").read_text()
    assert "| FixMatch + UPC against FixMatch |" in text
    assert "| FixMatch + UPCSC against" not in text


def test_claims_include_rates_and_the_numbers_of_figures(tmp_path: Path) -> None:
    for seed in (1, 2):
        for target in domains("pacs"):
            more = {"unlabeled/inclusion_rate": 0.7, "unlabeled/candidates": 2.5}
            fields = {"dataset": "pacs", "target_domain": target, "seed": seed, "config": {"img_size": 96}}
            write_run(tmp_path / "study/runs", 70, **fields, more={**more, "unlabeled/uus_rate": 0.25 + seed / 100})
    (tmp_path / "study/figures").mkdir()
    (tmp_path / "study/figures/tsne_pacs_sketch_numbers.csv").write_text("method,target,mmd2\nFixMatch,0.123456,0.5\n")
    main(["claims", "study/runs", "--out", "page.md"])
    text = (tmp_path / "page.md").read_text()
    assert "PACS: 22 % are unconfident; of those, the true class of 70 % is a candidate" in text
    rates = "26 (26 to 27) | 70 (70 to 70) | 2.5 (2.5 to 2.5) | 8 | 2 |"
    assert f"| PACS, 10 labels per class | reduced: 96 pixels, not 224 | {rates}" in text
    assert "[tsne_pacs_sketch](study/figures/tsne_pacs_sketch.png), reduced scale" in text
    assert "| FixMatch | 0.123 | 0.5 |" in text
    for line in text.splitlines():
        if line.startswith("ssdg analyse observation"):
            (config_dir() / line.split()[4]).read_text(encoding="utf-8")
