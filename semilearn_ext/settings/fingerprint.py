"""The hash of a run's scientific settings.

Runs of one experiment share it: seed and target are left out, since an experiment is averaged over them, and so are
paths, devices, workers and records. Files named by ``pretrain_path``, ``adain_dir`` and ``extend`` count by their
content, a split file and a folder of one's own images by their names, not by their location.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from semilearn_ext import registry
from semilearn_ext.errors import UserError
from semilearn_ext.settings.extensions import extension_hash
from semilearn_ext.settings.schema import KEYS, Settings
from semilearn_ext.settings.style_files import style_files


def scientific(settings: Settings) -> dict[str, Any]:
    """The settings and options whose change means another experiment."""
    flat = settings.flat()
    covered = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    return {**covered, "source_domains": sorted(settings.source_domains)}


def config_hash(settings: Settings) -> str:
    """Twelve hexadecimal digits."""
    covered = scientific(settings)
    if settings.pretrained:
        given, own = settings.pretrain_path, registry.NETS.get(settings.net, settings.where("net")).weights
        covered["weights"] = file_hash(given, "pretrain_path") if given else own
    if settings.base == "stylematch":
        covered["style"] = [file_hash(str(path), "adain_dir") for path in style_files(settings.adain_dir)]
    if settings.dataset == "folder":
        covered["folder"] = Path(settings.data_dir).expanduser().resolve().name
    if settings.extend:
        covered["extend"] = sorted(extension_hash(path) for path in settings.extend)
    if settings.split_file:
        covered["split_file"] = Path(settings.split_file).name
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()[:12]


@functools.cache
def file_hash(path: str, name: str) -> str:
    try:
        return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(f"{name}: {path}: {error.strerror}") from None
