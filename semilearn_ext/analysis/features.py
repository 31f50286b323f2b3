"""Features and logits of a finished run's images, computed once and kept.

They are kept in ``cache_dir/features`` under a name made of the checkpoint's content and the images' names.
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
from semilearn_ext.analysis.rebuild import Rebuilt
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.device import to_device


class Features(NamedTuple):
    """Of N plain images."""

    feat: np.ndarray
    """(N, D) float32: what is classified."""
    logits: np.ndarray
    """(N, C) float32."""


def features(rebuilt: Rebuilt, positions: Sequence[int]) -> Features:
    """Of the images at ``positions`` of the run's data, in that order; from the cache if they are in there."""
    path = Path(rebuilt.data.settings.cache_dir).expanduser() / "features" / f"{_key(rebuilt, positions)}.npz"
    try:
        with np.load(path) as kept:
            return Features(kept["feat"], kept["logits"])
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        made = compute(rebuilt, positions)
        files.write_atomically(path, lambda file: np.savez(file, feat=made.feat, logits=made.logits))
        return made


@torch.inference_mode()
def compute(rebuilt: Rebuilt, positions: Sequence[int]) -> Features:
    settings = rebuilt.data.settings
    images = PlainImages(rebuilt.data, positions, settings.eval_batch_size)
    feat, logits = [], []
    bar = tqdm(total=len(images), desc=f"features of {rebuilt.run.method}", unit="img", disable=None, leave=False)
    with bar:
        for _, x in images.share(rank=0, world=1):
            out = rebuilt.net(to_device(x, rebuilt.device, settings.channels_last))
            feat.append(out["feat"].float().cpu().numpy())
            logits.append(out["logits"].float().cpu().numpy())
            bar.update(len(x))
    return Features(np.concatenate(feat), np.concatenate(logits))


def _key(rebuilt: Rebuilt, positions: Sequence[int]) -> str:
    settings, items = rebuilt.data.settings, rebuilt.data.items
    about = (__version__, settings.dataset, settings.img_size, settings.eval_with_ema)
    digest = hashlib.sha256("/".join(map(str, about)).encode())
    digest.update(hashlib.sha256(rebuilt.run.checkpoint_file().read_bytes()).digest())
    for position in positions:
        digest.update(f"{items[position].name}\n".encode())
    return digest.hexdigest()[:24]
