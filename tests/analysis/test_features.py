"""Features are computed once for a checkpoint and its images."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from semilearn_ext.analysis import features as module
from semilearn_ext.analysis.features import compute, features
from semilearn_ext.analysis.load_model import LoadedModel, load_model
from semilearn_ext.analysis.load_run import FinishedRun, load_run
from semilearn_ext.engine import checkpoint


@pytest.fixture
def loaded(pair: tuple[FinishedRun, FinishedRun]) -> LoadedModel:
    return load_model(pair[0])


def test_features_are_read_from_the_cache_the_second_time(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    positions = loaded.data.split.target[5:300:7]
    first = features(loaded, positions)
    monkeypatch.setattr(module, "compute", lambda *_: pytest.fail("computed twice"))
    second = features(loaded, positions)
    for cached, computed in zip(second, first, strict=True):
        np.testing.assert_array_equal(cached, computed)
        assert cached.dtype == np.float32
    assert first.feat.shape == (len(positions), 256)


def test_each_row_is_its_own_image(loaded: LoadedModel) -> None:
    positions = loaded.data.split.target[:20]
    np.testing.assert_allclose(
        features(loaded, positions[::-1]).logits, features(loaded, positions).logits[::-1], atol=1e-5
    )


def test_another_checkpoint_has_other_features(loaded: LoadedModel, tmp_path: Path) -> None:
    positions = loaded.data.split.target[:10]
    before = features(loaded, positions)
    folder = tmp_path / "run"
    shutil.copytree(loaded.run.path, folder)
    state = checkpoint.load(loaded.run.checkpoint_file())
    state["model"] = {name: value + 0.1 for name, value in state["model"].items()}
    torch.save(state, folder / loaded.run.checkpoint_file().name)
    changed = load_model(load_run(folder))
    assert not np.allclose(features(changed, positions).logits, before.logits)


def test_a_damaged_cache_file_is_replaced(loaded: LoadedModel) -> None:
    positions = loaded.data.split.labelled[:6]
    first = features(loaded, positions)
    folder = Path(loaded.data.settings.cache_dir) / "features"
    newest = max(folder.glob("*.npz"), key=lambda path: path.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:200])
    np.testing.assert_array_equal(features(loaded, positions).logits, first.logits)
    np.testing.assert_array_equal(compute(loaded, positions).logits, first.logits)
