"""The hash of what is scientific in a run's settings.

Runs of one experiment share it: seed and target are left out, since they are what an experiment is averaged
over, and so are paths, devices, workers and records. The files that ``pretrain_path`` and ``adain_dir`` name count by
their content, a split file and a folder of one's own by their names, not by where they lie.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path

from semilearn_ext.errors import UserError
from semilearn_ext.settings.methods import parse_name
from semilearn_ext.settings.schema import KEYS, Settings
from semilearn_ext.settings.style_files import style_files


def config_hash(settings: Settings) -> str:
    """Twelve hexadecimal digits."""
    flat = settings.flat()
    covered = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    covered["source_domains"] = sorted(settings.source_domains)
    if settings.pretrained:
        given = settings.pretrain_path
        covered["weights"] = file_hash(given, "pretrain_path") if given else "torchvision"
    if parse_name(settings.algorithm, "algorithm").base == "stylematch":
        covered["style"] = [file_hash(str(path), "adain_dir") for path in style_files(settings.adain_dir)]
    if settings.dataset == "folder":
        covered["folder"] = Path(settings.data_dir).expanduser().resolve().name
    if settings.split_file:
        covered["split_file"] = Path(settings.split_file).name
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def file_hash(path: str, name: str) -> str:
    try:
        return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(f"{name}: {path}: {error.strerror}") from None
