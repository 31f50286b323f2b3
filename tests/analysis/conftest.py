"""Small finished runs, trained once for all analyses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.analysis.load_run import FinishedRun, load_run
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import settings_from
from tests.conftest import TINY

TrainRun = Callable[..., FinishedRun]


@pytest.fixture(scope="session")
def train_run(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainRun:
    """A finished run of a few steps; the same settings are trained once."""
    save_dir = tmp_path_factory.mktemp("analysed")

    def train(**values: Any) -> FinishedRun:
        from semilearn_ext import training

        folders = {"cache_dir": str(cache_dir), "save_dir": str(save_dir)}
        settings = settings_from(**{**TINY, "num_eval_iter": 4, **folders, **values})
        training.run(settings)
        return load_run(run_path(settings))

    return train


@pytest.fixture(scope="session")
def pair(train_run: TrainRun) -> tuple[FinishedRun, FinishedRun]:
    """FixMatch with a threshold that half the images pass after a few steps, and the same with a plug-in."""
    # Without pseudo labels, which so early would all be of one class.
    longer = {"p_cutoff": 0.2, "ulb_loss_ratio": 0, "batch_size": 30, "lr": 0.03, "num_train_iter": 40}
    longer["num_eval_iter"] = 40
    return train_run(**longer), train_run(**longer, algorithm="fixmatch_upcsc")


def content_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
