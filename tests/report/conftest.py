"""Run folders made by hand, so that what a table must show can be worked out on paper."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.settings.domains import DOMAINS

Tree = Callable[..., Path]


def write_run(root: Path, accuracy: float, **about: Any) -> Path:
    """A finished run of ``accuracy`` percent. Keywords: any field of the result, ``config``, ``epochs``."""
    config, epochs = about.pop("config", {}), about.pop("epochs", (1.0, 2.0, 3.0))
    result = {
        "dataset": "digits_mini",
        "labels_per_class": 10,
        "algorithm": "fixmatch",
        "target_domain": "pen",
        "seed": 1,
        "iterations": 30,
        "top1": {"last": accuracy / 100, "source_val": (accuracy - 1) / 100, "oracle": (accuracy + 1) / 100},
        "seconds": 12.0,
        "version": "0.1.0",
        "scale": "reduced",
        **about,
    }
    result.setdefault("config_hash", f"of {result['algorithm']} {result['labels_per_class']} {result['dataset']}")
    path = (
        root
        / result["dataset"]
        / f"{result['labels_per_class']}lpc"
        / result["algorithm"]
        / result["target_domain"]
        / f"seed{result['seed']}"
    )
    path.mkdir(parents=True)
    (path / "result.json").write_text(json.dumps(result))
    named = {"algorithm": result["algorithm"], "dataset": result["dataset"], "lr": 0.03, "save_dir": str(root)}
    (path / "config.yaml").write_text(json.dumps({**named, **config}))
    (path / "environment.json").write_text(json.dumps({"git": "c0ffee", "packages": {"torch": "2.11.0"}}))
    lines = [
        {
            "epoch": epoch,
            "target/top1": accuracy / 100 - (epochs[-1] - epoch) / 10,
            "source_val/top1": 0.9,
            "unlabeled/top1": 0.8,
            "unlabeled/uus_rate": 0.1 * epoch,
            "unlabeled/inclusion_rate": 0.7,
        }
        for epoch in epochs
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Write one run below ``tmp_path / "runs"``."""
    return lambda accuracy, **about: write_run(tmp_path / "runs", accuracy, **about)


@pytest.fixture
def tree(run: Callable[..., Path], tmp_path: Path) -> Path:
    """FixMatch and UPCSC on digits_mini, five seeds each; FreeMatch with two whole seeds and one without ``print``.

    ========  ===  =======  ======  ===========  ==================
    accuracy  pen  texture  street  print        mean of seed s
    ========  ===  =======  ======  ===========  ==================
    fixmatch  90+s 80       70      60           75 + s / 4
    upcsc     90   84       70      60 + 4(s-1)  76 + (s - 1)
    freematch 88   80       70      62 + 4s      75 + s
    ========  ===  =======  ======  ===========  ==================
    """
    for seed in range(1, 6):
        rows = {"fixmatch": (90 + seed, 80, 70, 60), "fixmatch_upcsc": (90, 84, 70, 60 + 4 * (seed - 1))}
        if seed <= 3:
            rows["freematch"] = (88, 80, 70, 62 + 4 * seed)
        for algorithm, accuracies in rows.items():
            for target, accuracy in zip(DOMAINS["digits_mini"], accuracies, strict=True):
                if (algorithm, seed, target) != ("freematch", 3, "print"):
                    run(accuracy, algorithm=algorithm, seed=seed, target_domain=target)
    return tmp_path / "runs"


@pytest.fixture
def whole(run: Callable[..., Path]) -> Callable[..., None]:
    """All targets of some seeds, ``accuracy + seed`` percent each."""

    def write(accuracy: float, seeds: tuple[int, ...] = (1, 2, 3, 4, 5), **about: Any) -> None:
        for seed in seeds:
            for target in DOMAINS[about.get("dataset", "digits_mini")]:
                run(accuracy + seed, seed=seed, target_domain=target, **about)

    return write
