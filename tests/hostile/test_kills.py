"""A sample of the kills; ``python -m tests.hostile kills`` runs hundreds."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from tests.hostile import kills


@pytest.mark.parametrize("case", [kills.Case("fixmatch_upcsc", "reference", 0), kills.Case("comatch", "usb", 0)])
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(
    case: kills.Case, image_folder: Path, cache_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"data_dir": str(image_folder), "cache_dir": str(cache_dir)}
    counts = kills.try_case(case, 3, tmp_path, random.Random(1), **common)
    assert counts["kills"] >= 2
    assert (counts["differ"], counts["failed"]) == (0, 0), capsys.readouterr().out


def test_the_comparison_detects_a_single_bit() -> None:
    state = {"model": {"w": torch.zeros(3)}, "list": [1, float("nan"), torch.tensor(1)]}
    copy = {"model": {"w": torch.zeros(3)}, "list": [1, float("nan"), torch.tensor(1)]}
    assert kills.is_equal(state, copy)
    for other in (
        {**state, "model": {"w": torch.tensor([0.0, -0.0, 0.0])}},
        {**state, "model": {"w": torch.zeros(3).double()}},
        {**state, "list": [1, 2.0, torch.tensor(1)]},
        {**state, "list": [True, float("nan"), torch.tensor(1)]},
        {"model": state["model"]},
    ):
        assert not kills.is_equal(state, other)
