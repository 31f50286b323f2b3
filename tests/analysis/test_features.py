"""Features are computed once for a checkpoint and its images."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
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


def cache_file(loaded: LoadedModel, positions: list[int]) -> Path:
    return Path(loaded.data.settings.cache_dir) / "features" / f"{module._key(loaded, positions)}.npz"


def repacked(content: bytes, **changed: np.ndarray) -> bytes:
    """The archive ``content`` with some arrays replaced, and correct checksums of its members."""
    with np.load(io.BytesIO(content)) as archive:
        arrays = {**archive, **changed}
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda content: content[:200],
    "empty": lambda content: b"",
    "header": lambda content: content[:68] + bytes([content[68] ^ 2]) + content[69:],
    "other values": lambda content: repacked(content, logits=np.zeros((6, 10), np.float32)),
    "fewer rows": lambda content: repacked(content, feat=np.zeros((2, 256), np.float32)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_cache_file_is_replaced(
    loaded: LoadedModel, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    positions = loaded.data.split.labelled[:6]
    first = features(loaded, positions)
    path = cache_file(loaded, positions)
    path.write_bytes(damage(path.read_bytes()))
    again = features(loaded, positions)
    assert "cache ignored because it has changed" in capsys.readouterr().err
    for cached, computed in zip(again, first, strict=True):
        np.testing.assert_array_equal(cached, computed)
    np.testing.assert_array_equal(compute(loaded, positions).logits, first.logits)


def test_features_of_another_run_under_this_name_are_not_used(loaded: LoadedModel) -> None:
    first, second = loaded.data.split.labelled[:6], loaded.data.split.labelled[6:12]
    expected = features(loaded, first)
    features(loaded, second)
    cache_file(loaded, first).write_bytes(cache_file(loaded, second).read_bytes())
    np.testing.assert_array_equal(features(loaded, first).logits, expected.logits)


def test_features_can_be_computed_without_a_cache(loaded: LoadedModel) -> None:
    positions = loaded.data.split.labelled[:5]
    expected = features(loaded, positions)
    path = cache_file(loaded, positions)
    path.unlink()
    os.mkfifo(path)
    np.testing.assert_array_equal(features(loaded, positions).logits, expected.logits)
    path.unlink()
