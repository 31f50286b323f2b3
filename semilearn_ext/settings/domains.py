"""The domains of a dataset, the target and source domains of a run, and whether the sources can share a batch.

Does not import torch, so that a sweep is planned and checked quickly.
"""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.files import subfolders
from semilearn_ext.names import check_folder_name
from semilearn_ext.registry import DATASETS
from semilearn_ext.settings.schema import Settings
from semilearn_ext.specs import DatasetSpec


def dataset_of(settings: Settings) -> DatasetSpec:
    return DATASETS.get(settings.dataset, settings.where("dataset"))


def domains_of(settings: Settings) -> list[str]:
    """The domains of the dataset in ``settings``, in the order of the dataset."""
    return list(dataset_of(settings).domains) or _folders_in_data_dir(settings)


def _folders_in_data_dir(settings: Settings) -> list[str]:
    root = Path(settings.data_dir).expanduser()
    if not root.is_dir():
        raise UserError(f"{settings.where('data_dir')}: {root}: no such folder; it must contain <domain>/<class>/*")
    names = subfolders(root)
    if len(names) < 2:
        raise UserError(
            f"{settings.where('data_dir')}: {root}: expected a folder for each of two or more domains, "
            f"found {', '.join(names) or 'none'}"
        )
    for name in names:
        check_folder_name(name, f"{settings.where('data_dir')}: {root}")
    seen: dict[str, str] = {}
    for name in names:
        for key in (unicodedata.normalize("NFC", name).casefold(), os.path.realpath(root / name)):
            other = seen.setdefault(key, name)
            if other != name:
                raise UserError(
                    f"{settings.where('data_dir')}: {root}: {other!r} and {name!r} are the same domain, or differ "
                    f"only in case or encoding; rename or remove one of them"
                )
    if "all" in names:
        raise UserError(f"{settings.where('data_dir')}: {root}: a domain cannot be called 'all'; rename the folder")
    return names


def targets_of(settings: Settings) -> list[str]:
    """The target domains, one per run. Raises an error for unknown or contradictory domains, and for a batch that the
    source domains cannot share."""
    domains = domains_of(settings)
    named = [("source_domains", name) for name in settings.source_domains]
    if settings.target_domain != "all":
        named.append(("target_domain", settings.target_domain))
    for key, name in named:
        if name not in domains:
            hint = did_you_mean(name, [*domains, "all"])
            raise UserError(
                f"{settings.where(key)}: {name!r} is not a domain of {settings.dataset} ({', '.join(domains)}){hint}"
            )
    if len(set(settings.source_domains)) < len(settings.source_domains):
        raise UserError(f"{settings.where('source_domains')}: lists a domain twice; remove one of them")
    if settings.target_domain in settings.source_domains:
        raise UserError(
            f"{settings.where('source_domains')}: {settings.target_domain!r} is the target and cannot be a source"
        )
    targets = domains if settings.target_domain == "all" else [settings.target_domain]
    for target in targets:
        check_batch(settings, len(sources(settings, target)), world_size=1)
    return targets


def sources(settings: Settings, target: str) -> list[str]:
    """The domains to train on if ``target`` is the target domain, in the order of the dataset."""
    domains = domains_of(settings)
    allowed = settings.source_domains or domains
    return [name for name in domains if name in allowed and name != target]


def check_batch(settings: Settings, sources: int, world_size: int) -> None:
    """Raise an error if ``batch_size`` cannot be divided among the source domains and processes."""
    where = settings.where("batch_size")
    if not sources:
        raise UserError(f"{settings.where('source_domains')}: no domain is left to train on")
    if settings.batch_size % sources:
        near = max(sources, round(settings.batch_size / sources) * sources)
        raise UserError(f"{where}: {settings.batch_size} is not divisible by the {sources} source domains; try {near}")
    if (settings.batch_size // sources) % world_size:
        raise UserError(
            f"{where}: {settings.batch_size // sources} images per domain cannot be shared by {world_size} processes"
        )
