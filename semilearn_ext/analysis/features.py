"""Features and logits of the images of a finished run, computed once and cached.

The cache is in ``cache_dir/features``. The name of a file depends on the content of the checkpoint and of the images.
A file contains a checksum of its name and its arrays; if it does not match, the features are computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from semilearn_ext import __version__, files
from semilearn_ext.analysis.load_model import LoadedModel
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.device import evaluation_batch, to_device
from semilearn_ext.errors import UserError


class Features(NamedTuple):
    """The output of the network for N images in the test view."""

    feat: np.ndarray
    """(N, D) float32, the input of the classifier."""
    logits: np.ndarray
    """(N, C) float32."""


def features(loaded: LoadedModel, positions: Sequence[int]) -> Features:
    """The features of the images at ``positions`` of the run's data, in this order, from the cache if possible."""
    path = Path(loaded.data.settings.cache_dir).expanduser() / "features" / f"{_key(loaded, positions)}.npz"
    cached = _read_cache(path)
    if cached is not None:
        return cached
    computed = compute(loaded, positions)
    # The cache is optional: a read-only folder must not stop an analysis.
    with contextlib.suppress(OSError, UserError):
        _write_cache(path, computed)
    return computed


def _read_cache(path: Path) -> Features | None:
    """The features stored at ``path``, or None if the file is missing or damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            cached = Features(archive["feat"], archive["logits"])
            if str(archive["sha256"]) == _checksum(path, cached):
                return cached
    # Depending on which byte is wrong, numpy, zipfile or zlib raises its own exception.
    except Exception:
        pass
    print(f"{path}: cache ignored because it has changed; computing the features again", file=sys.stderr, flush=True)
    return None


def _write_cache(path: Path, computed: Features) -> None:
    arrays = {**computed._asdict(), "sha256": np.array(_checksum(path, computed))}
    files.write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays), flush=False)


def _checksum(path: Path, arrays: Features) -> str:
    digest = hashlib.sha256(path.name.encode())
    for array in arrays:
        digest.update(f"{array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


@torch.inference_mode()
def compute(loaded: LoadedModel, positions: Sequence[int]) -> Features:
    settings = loaded.data.settings
    images = PlainImages(loaded.data, positions, evaluation_batch(settings, loaded.device), view="test")
    feat, logits = [], []
    bar = tqdm(total=len(images), desc=f"features of {loaded.run.method.title}", unit="img", disable=None, leave=False)
    with bar:
        for _, x in images.share():
            out = loaded.net(to_device(x, loaded.device, settings.channels_last))
            feat.append(out["feat"].float().cpu().numpy())
            logits.append(out["logits"].float().cpu().numpy())
            bar.update(len(x))
    return Features(np.concatenate(feat), np.concatenate(logits))


def _key(loaded: LoadedModel, positions: Sequence[int]) -> str:
    settings, items = loaded.data.settings, loaded.data.items
    about = (__version__, settings.dataset, loaded.data.digest, settings.img_size, settings.test_view)
    digest = hashlib.sha256("/".join(map(str, (*about, settings.eval_with_ema))).encode())
    digest.update(hashlib.sha256(loaded.run.checkpoint_file().read_bytes()).digest())
    for position in positions:
        digest.update(files.encoded(f"{items[position].name}\n"))
    return digest.hexdigest()[:24]
