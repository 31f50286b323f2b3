"""Stock USB on a CPU: these tests redirect ``.cuda()`` and CUDA's timers."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from semilearn import get_config
from torch import nn

import semilearn_ext.usb  # noqa: F401
from tests.stock import toy


class Event:
    """Replaces ``torch.cuda.Event``, which USB's timer hook needs."""

    def __init__(self, enable_timing: bool = False) -> None:
        pass

    def record(self) -> None:
        pass

    def elapsed_time(self, _: Event) -> float:
        return 0.0


@pytest.fixture(autouse=True)
def cpu_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_, **__: self)
    monkeypatch.setattr(nn.Module, "cuda", lambda self, *_, **__: self)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda *_: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)


@pytest.fixture
def usb_config(tmp_path: Path, adain_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Namespace]:
    """USB's own ``get_config`` for a run of a few steps on this package's data."""
    # USB starts six processes to find a free port, which no test uses.
    monkeypatch.setattr("semilearn.lighting.config.get_port", lambda: 15000)

    def make(**values: Any) -> Namespace:
        defaults = {
            "algorithm": "fixmatch_upcsc",
            "dataset": "none",
            "net": "wrn_28_2",
            "num_classes": toy.CLASSES,
            "num_train_iter": 4,
            "epoch": 2,
            "num_eval_iter": 2,
            "num_log_iter": 2,
            "batch_size": 6,
            "uratio": 1,
            "eval_batch_size": 36,
            "lr": 0.03,
            "num_workers": 0,
            "gpu": 0,
            "distributed": False,
            "seed": 0,
            "save_dir": str(tmp_path),
            "save_name": "run",
            "lb_dest_len": 36,
            "ulb_dest_len": 36,
            "num_domains": toy.DOMAINS,
            "adain_dir": str(adain_dir),
        }
        return get_config({**defaults, **values})

    return make
