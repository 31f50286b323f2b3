"""The hash of what is scientific in a run's settings.

Runs of one experiment share it: seed and target are left out, since they are what an experiment is averaged
over, and so are paths, devices, workers and records. The file that ``pretrain_path`` names counts by its
content, a split file and a folder of one's own by their names, not by where they lie.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from semilearn_ext.errors import UserError
from semilearn_ext.settings.schema import KEYS, Settings


def config_hash(settings: Settings) -> str:
    """Twelve hexadecimal digits."""
    flat = settings.flat()
    covered = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    covered["source_domains"] = sorted(settings.source_domains)
    if settings.pretrained:
        covered["weights"] = file_hash(settings.pretrain_path) if settings.pretrain_path else "torchvision"
    if settings.dataset == "folder":
        covered["folder"] = Path(settings.data_dir).expanduser().resolve().name
    if settings.split_file:
        covered["split_file"] = Path(settings.split_file).name
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def file_hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(f"pretrain_path: {path}: {error.strerror}") from None
