"""Features are computed once for a checkpoint and its images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from semilearn_ext.analysis import features as module
from semilearn_ext.analysis.features import compute, features
from semilearn_ext.analysis.finished import FinishedRun, open_run
from semilearn_ext.analysis.rebuild import Rebuilt, rebuild
from semilearn_ext.engine import checkpoint


@pytest.fixture
def rebuilt(pair: tuple[FinishedRun, FinishedRun]) -> Rebuilt:
    return rebuild(pair[0])


def test_they_come_from_the_cache_the_second_time(rebuilt: Rebuilt, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = rebuilt.data.split.target[5:300:7]
    first = features(rebuilt, positions)
    monkeypatch.setattr(module, "compute", lambda *_: pytest.fail("computed twice"))
    again = features(rebuilt, positions)
    for kept, made in zip(again, first, strict=True):
        np.testing.assert_array_equal(kept, made)
        assert kept.dtype == np.float32
    assert first.feat.shape == (len(positions), 256)


def test_each_row_is_its_own_image(rebuilt: Rebuilt) -> None:
    positions = rebuilt.data.split.target[:20]
    np.testing.assert_allclose(
        features(rebuilt, positions[::-1]).logits, features(rebuilt, positions).logits[::-1], atol=1e-5
    )


def test_another_checkpoint_has_other_features(rebuilt: Rebuilt, tmp_path: Path) -> None:
    positions = rebuilt.data.split.target[:10]
    before = features(rebuilt, positions)
    folder = tmp_path / "run"
    shutil.copytree(rebuilt.run.path, folder)
    state = checkpoint.load(rebuilt.run.checkpoint_file())
    state["model"] = {name: value + 0.1 for name, value in state["model"].items()}
    torch.save(state, folder / rebuilt.run.checkpoint_file().name)
    changed = rebuild(open_run(folder))
    assert not np.allclose(features(changed, positions).logits, before.logits)


def test_a_damaged_cache_file_is_made_anew(rebuilt: Rebuilt) -> None:
    positions = rebuilt.data.split.labelled[:6]
    first = features(rebuilt, positions)
    folder = Path(rebuilt.data.settings.cache_dir) / "features"
    newest = max(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:200])
    np.testing.assert_array_equal(features(rebuilt, positions).logits, first.logits)
    np.testing.assert_array_equal(compute(rebuilt, positions).logits, first.logits)
