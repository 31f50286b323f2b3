"""Runs for all tests of reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.write_run import domains, write_run


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Write one run below ``tmp_path / "runs"``."""
    return lambda accuracy, **fields: write_run(tmp_path / "runs", accuracy, **fields)


@pytest.fixture
def tree(run: Callable[..., Path], tmp_path: Path) -> Path:
    """FixMatch and UPCSC on digits_mini, five seeds each; FreeMatch with two complete seeds and one without ``print``.

    ========  ===  =======  ======  ===========  ==================
    accuracy  pen  texture  street  print        mean of seed s
    ========  ===  =======  ======  ===========  ==================
    fixmatch  90+s 80       70      60           75 + s / 4
    upcsc     90   84       70      60 + 4(s-1)  76 + (s - 1)
    freematch 88   80       70      62 + 4s      75 + s
    ========  ===  =======  ======  ===========  ==================
    """
    for seed in range(1, 6):
        rows = {("fixmatch", ()): (90 + seed, 80, 70, 60), ("fixmatch", ("upcsc",)): (90, 84, 70, 60 + 4 * (seed - 1))}
        if seed <= 3:
            rows["freematch", ()] = (88, 80, 70, 62 + 4 * seed)
        for (base, plugins), accuracies in rows.items():
            for target, accuracy in zip(domains("digits_mini"), accuracies, strict=True):
                if (base, seed, target) != ("freematch", 3, "print"):
                    run(accuracy, base=base, plugins=plugins, seed=seed, target_domain=target)
    return tmp_path / "runs"


@pytest.fixture
def complete_seeds(run: Callable[..., Path]) -> Callable[..., None]:
    """All targets of some seeds, with ``accuracy + seed`` percent each."""

    def write(accuracy: float, seeds: tuple[int, ...] = (1, 2, 3, 4, 5), **fields: Any) -> None:
        for seed in seeds:
            for target in domains(fields.get("dataset", "digits_mini")):
                run(accuracy + seed, seed=seed, target_domain=target, **fields)

    return write
