"""The identity of an experiment, and its hash.

Runs of one experiment have the same hash. It does not include the seed and the target, because an experiment is
averaged over them, nor paths, devices, workers and records. Files given by ``pretrain_path``, ``adain_dir`` and
``extend`` are identified by their content, the user's own images by name and content, and a split file by its name,
regardless of their location. The images of a benchmark are identified by its name; their digest is recorded separately.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from semilearn_ext import registry
from semilearn_ext.settings.content import FOLDER, dataset_name, file_hash, folder_digest
from semilearn_ext.settings.extensions import extension_hash
from semilearn_ext.settings.schema import KEYS, Settings
from semilearn_ext.settings.style_files import style_files

EMPTY: Mapping[str, Any] = MappingProxyType({})
_BY_CONTENT = {
    "weights": "the content of pretrain_path",
    "style": "the files in adain_dir",
    "extend": "the content of the extensions",
    "images": "the images in data_dir",
}
_SHOWN = 4


def scientific(settings: Settings) -> dict[str, Any]:
    """The settings and options that define the experiment."""
    flat = settings.flat()
    covered = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    return {**covered, "source_domains": sorted(settings.source_domains)}


def content(settings: Settings, recorded: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """Digests of the files and images that the settings refer to. Those in ``recorded`` are not computed again."""
    readers: dict[str, Callable[[], Any]] = {}
    if settings.pretrained:
        given, own = settings.pretrain_path, registry.NETS.get(settings.net, settings.where("net")).weights
        readers["weights"] = lambda: file_hash(given, "pretrain_path") if given else own
    if "adain_dir" in registry.ALGORITHMS.get(settings.base, settings.where("algorithm")).reads:
        readers["style"] = lambda: [file_hash(str(path), "adain_dir") for path in style_files(settings.adain_dir)]
    if settings.dataset == FOLDER:
        readers["images"] = lambda: folder_digest(Path(settings.data_dir), Path(settings.cache_dir))
    if settings.extend:
        readers["extend"] = lambda: sorted(extension_hash(path) for path in settings.extend)
    return {name: recorded[name] if name in recorded else read() for name, read in readers.items()}


def identity(settings: Settings, recorded: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """Everything that is part of the config hash."""
    names = {}
    if settings.dataset == FOLDER:
        names["dataset_name"] = dataset_name(settings)
    if settings.split_file:
        names["split_file"] = Path(settings.split_file).name
    return {**scientific(settings), **names, **content(settings, recorded)}


def run_identity(settings: Settings, recorded: Mapping[str, Any] = EMPTY) -> dict[str, Any]:
    """Everything that distinguishes one run from all others: the experiment, the target and the seed."""
    return {**identity(settings, recorded), **run_key(settings)}


def run_key(settings: Settings) -> dict[str, Any]:
    """What distinguishes the folder of a run from those of other runs of the same experiment."""
    return {name: getattr(settings, name) for name in ("target_domain", "seed", "variant")}


def config_hash(settings: Settings) -> str:
    """Twelve hexadecimal digits that identify the experiment."""
    return hash_of(identity(settings))


def hash_of(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    """Describe how two identities differ: ``"lr (0.03 and 0.1), the images in data_dir"``."""
    names = [name for name in dict.fromkeys((*first, *second)) if first.get(name) != second.get(name)]
    texts = [_BY_CONTENT.get(name) or f"{name} ({_shown(first, name)} and {_shown(second, name)})" for name in names]
    more = [f"{len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return ", ".join([*texts[:_SHOWN], *more])


def _shown(identity: Mapping[str, Any], name: str) -> str:
    value = identity.get(name)
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "not set" if value is None or value == "" else str(value)
