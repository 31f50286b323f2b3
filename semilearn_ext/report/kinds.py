"""Runs of one name that are not of one experiment: told apart by what differs, never averaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.names import method_title, setting_title
from semilearn_ext.report.records import IDENTITY
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings.load import read_yaml
from semilearn_ext.settings.schema import KEYS

METHOD = ["dataset", "labels", "method"]
GROUP = [*METHOD, "kind"]
"""Runs that are averaged: of one name and of one experiment."""

_NAMED_FILES = ("split_file", "pretrain_path")
_SHOWN = 3

Config = Mapping[str, Any]


def read_configs(runs: pd.DataFrame) -> tuple[dict[str, Config], list[str]]:
    """The scientific settings by config hash, from the first run that has it; empty where they cannot be read."""
    configs: dict[str, Config] = {}
    warnings = []
    for run in runs.drop_duplicates("config_hash").itertuples():
        try:
            raw = read_yaml(RunFolder(run.path).config_file)
        except UserError as error:
            warnings.append(f"{error}; its settings are not shown")
            raw = {}
        configs[run.config_hash] = _scientific({name: entry.value for name, entry in raw.items()})
    return configs, warnings


def _scientific(flat: Config) -> Config:
    """What the config hash covers, in words: files count by their names."""
    kept = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    files = {name: Path(str(flat[name])).name for name in _NAMED_FILES if flat.get(name)}
    return {**kept, **files}


def differing(configs: Iterable[Config]) -> list[str]:
    """The settings that do not have the same value in all ``configs``."""
    there = list(configs)
    names = dict.fromkeys(name for config in there for name in config)
    return [name for name in names if any(config.get(name) != there[0].get(name) for config in there)]


def value_of(config: Config, name: str) -> str:
    """A setting's value in words."""
    value = config.get(name)
    return "not set" if value is None else str(value)


def with_kinds(runs: pd.DataFrame, configs: Mapping[str, Config]) -> tuple[pd.DataFrame, list[str]]:
    """``runs`` with a column ``kind``: empty, or what sets a run apart from others of its setting and method."""
    kinds = pd.Series("", index=runs.index, dtype=object)
    warnings = []
    for (dataset, labels, method), same in runs.groupby(METHOD, sort=False):
        identities = list(same[IDENTITY].drop_duplicates().itertuples(index=False, name=None))
        if len(identities) > 1:
            words = _words(identities, configs)
            kinds[same.index] = [words[tuple(row)] for row in same[IDENTITY].itertuples(index=False, name=None)]
            where = f"{method_title(method)} on {setting_title(dataset, labels)}"
            warnings.append(f"{where}: {len(identities)} kinds of runs, shown apart: {' | '.join(words.values())}")
    return runs.assign(kind=kinds), warnings


def _words(identities: list[tuple[str, ...]], configs: Mapping[str, Config]) -> dict[tuple[str, ...], str]:
    """A few words for each identity (config hash, version, scale) that no other of them has."""
    names = differing(configs[identity[0]] for identity in identities)
    hashes, versions, scales = (len(set(column)) > 1 for column in zip(*identities, strict=True))
    words = {}
    for identity in identities:
        config_hash, version, scale = identity
        parts = [f"{name} {value_of(configs[config_hash], name)}" for name in names[:_SHOWN]]
        parts += [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        parts += [f"version {version}"] if versions else []
        parts += [f"{scale} scale"] if scales else []
        words[identity] = ", ".join(parts)
    if len(set(words.values())) < len(words) and hashes:
        words = {identity: ", ".join(filter(None, (text, f"config {identity[0]}"))) for identity, text in words.items()}
    return words
