"""train.py as users run it: help, plan, errors, one run, all targets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.forked import Forked

Train = Callable[..., Forked]
Script = Callable[..., subprocess.CompletedProcess[str]]
QUICK = ("--batch_size", "6", "--num_train_iter", "2", "--num_eval_iter", "2", "--labels_per_class", "5")


def test_help_lists_every_setting_in_groups_without_importing_torch() -> None:
    code = (
        "import sys, runpy; sys.argv = ['train.py', '--help']\n"
        "try: runpy.run_path('train.py', run_name='__main__')\n"
        "except SystemExit: print('torch' in sys.modules, 'semilearn' in sys.modules)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert process.stdout.splitlines()[-1] == "False False"
    assert process.stdout.startswith("usage: ssdg train --c FILE")
    for text in (
        "data:\n  dataset, labels and batches\n",
        "--target_domain",
        "--p_cutoff",
        "machine:\n  device, precision",
    ):
        assert text in process.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--sede", "3"), "--sede: no such setting; did you mean 'seed'?"),
        (("--target_domain", "pencil"), "'pencil' is not a domain of digits_mini (pen, texture, street, print)"),
        (("--source_domains", "pen", "--target_domain", "pen"), "'pen' is the target and cannot be a source"),
        (("--batch_size", "50"), "50 is not divisible by the 3 source domains; try 51"),
        (("--labels_per_class", "100"), "100 labels per class requested, but pen/0 has only"),
        (("--batch_size", "3000"), "1000 unlabelled images per domain and step, but domain"),
        (("--dataset", "pasc"), "'pasc' is not a known dataset"),
        (("--net", "resnet81"), "'resnet81' is not a known network; did you mean 'resnet18'?"),
        (("--net", "resnet18", "--pretrained", "--pretrain_path", "no.pth"), "no.pth: no such file"),
        (("--device", "mps"), "no mps device is available"),
    ],
)
def test_an_error_is_one_line_with_exit_code_2(
    train: Train, tmp_path: Path, arguments: tuple[str, ...], expected: str
) -> None:
    target = () if "--target_domain" in arguments else ("--target_domain", "print")
    process = train(*target, *arguments)
    output, errors = process.communicate()
    assert process.returncode == 2
    assert expected in errors
    assert errors.count("\n") == 1, errors
    assert output == ""
    assert not (tmp_path / "runs").exists()


def test_dry_run_shows_the_plan_and_writes_nothing(train: Train, tmp_path: Path) -> None:
    config = str(ROOT / "config" / "ssdg" / "fixmatch_digits_mini.yaml")
    cache = str(tmp_path / "cache")  # with all images; the cache of the tests has only a few
    output, errors = train("--c", config, "--dry_run", "--cache_dir", cache).communicate()
    for text in (
        "48 labelled + 48 unlabelled images per step, 16 + 16 from each of 3 source domains",
        "300 iterations, 15 per epoch; 60 labelled, 750 unlabelled, 90 validation, 300 test images",
        "classifier     1,290 parameters, learning rate 0.01",
        "device      cpu",
        str(Path("2lpc", "fixmatch", "street", "seed1")),
    ):
        assert text in output, errors
    assert not (tmp_path / "runs").exists()


def test_all_targets_give_four_runs_and_a_table(train_script: Script, train: Train, tmp_path: Path) -> None:
    process = train_script("--algorithm", "supervised", *QUICK)
    output = process.stdout
    assert process.returncode == 0, process.stderr
    assert [line.split()[0] for line in output.splitlines()[3:8]] == ["pen", "texture", "street", "print", "mean"]
    folders = sorted((tmp_path / "runs").rglob("result.json"))
    assert len(folders) == 4
    result = json.loads(folders[0].read_text())
    assert set(result["top1"]) == {"last", "source_val", "oracle", "ema", "swa"}
    names = {path.name for path in folders[0].parent.iterdir()}
    assert names == {
        *("config.yaml", "identity.json", "environment.json", "split.json", "metrics.jsonl", "result.json", "log.txt"),
        "details.json",
        "checkpoint_00000002.pt",
    }
    second = train("--algorithm", "supervised", *QUICK).communicate()
    assert second[1].count("already finished, skipping (use --overwrite to run it again)") == 4
    assert second[0] == output
