"""Features and logits of the images of a finished run, computed once and cached.

The cache is in ``cache_dir/features``; the name of a file depends on the content of the checkpoint and on the images.
"""

from __future__ import annotations

import hashlib
import zipfile
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


class Features(NamedTuple):
    """The output of the network for N images in the test view."""

    feat: np.ndarray
    """(N, D) float32, the input of the classifier."""
    logits: np.ndarray
    """(N, C) float32."""


def features(loaded: LoadedModel, positions: Sequence[int]) -> Features:
    """The features of the images at ``positions`` of the run's data, in this order, from the cache if possible."""
    path = Path(loaded.data.settings.cache_dir).expanduser() / "features" / f"{_key(loaded, positions)}.npz"
    try:
        with np.load(path) as cached:
            return Features(cached["feat"], cached["logits"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        computed = compute(loaded, positions)
        files.write_atomically(path, lambda file: np.savez(file, feat=computed.feat, logits=computed.logits))
        return computed


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
    about = (__version__, settings.dataset, settings.img_size, settings.test_view, settings.eval_with_ema)
    digest = hashlib.sha256("/".join(map(str, about)).encode())
    digest.update(hashlib.sha256(loaded.run.checkpoint_file().read_bytes()).digest())
    for position in positions:
        digest.update(f"{items[position].name}\n".encode())
    return digest.hexdigest()[:24]
