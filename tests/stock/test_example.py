"""The example in examples/ runs unchanged."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from semilearn import nets
from semilearn.core.utils import build
from torch.utils.data import DataLoader

from tests.conftest import ROOT
from tests.stock import toy


def without_workers(*args: Any, num_workers: int, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(*args, **kwargs)


def test_the_example_trains_and_tests(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The default cache is below the user's home.
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "semilearn_ext").symlink_to(cache_dir)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["usb_trainer.py", "3"])
    # USB's network and loader processes would take most of the time.
    monkeypatch.setattr(nets, "wrn_28_2", toy.noisy_net)
    monkeypatch.setattr(build, "DataLoader", without_workers)
    result = runpy.run_path(str(ROOT / "examples" / "usb_trainer.py"), run_name="__main__")
    assert result["algorithm"].it == 3
    assert "train/upc" in result["algorithm"].log_dict
    assert (tmp_path / "saved_models" / "usb_trainer" / "latest_model.pth").is_file()
    assert "target domain: " in capsys.readouterr().out
