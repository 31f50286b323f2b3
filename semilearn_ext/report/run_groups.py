"""Group the runs that are averaged. Different experiments with the same method are shown separately, each with the
settings in which it differs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.methods import MethodId, setting_title
from semilearn_ext.report.record_files import Config, scientific
from semilearn_ext.report.records import IDENTITY

METHOD = ["dataset", "labels", "method"]
GROUP = [*METHOD, "setup"]
"""The columns that identify a :class:`Group`."""

_SHOWN = 3

DATA_SETTINGS = {"test_view": "test view", "splits": "label splits"}
"""Data settings that are shown with the results, with their printed names."""


class Group(NamedTuple):
    """Runs that are averaged: one method and one experiment on one benchmark."""

    dataset: str
    labels: int
    method: MethodId
    setup: str
    """How these runs differ from others of the method (``lr 0.03``); empty if there are no others."""

    @classmethod
    def of(cls, row: Any) -> Group:
        """The group of a row that has the columns ``GROUP``."""
        return cls(row.dataset, row.labels, row.method, row.setup)

    @property
    def title(self) -> str:
        return f"{self.method.title} [{self.setup}]" if self.setup else self.method.title

    @property
    def setting(self) -> str:
        return setting_title(self.dataset, self.labels)


def read_configs(runs: pd.DataFrame) -> tuple[dict[str, Config], list[str]]:
    """The scientific settings by config hash, from the first run with that hash; empty if they cannot be read."""
    configs: dict[str, Config] = {}
    warnings = []
    for run in runs.drop_duplicates("config_hash").itertuples():
        try:
            config = run.source.read_config()
        except UserError as error:
            warnings.append(f"{error}; its settings are not shown")
            config = {}
        configs[run.config_hash] = scientific(config)
    return configs, warnings


def differing(configs: Iterable[Config]) -> list[str]:
    """The settings that do not have the same value in all ``configs``."""
    configs = list(configs)
    names = dict.fromkeys(name for config in configs for name in config)
    return [name for name in names if any(config.get(name) != configs[0].get(name) for config in configs)]


def value_of(config: Config, name: str) -> str:
    value = config.get(name)
    return "not set" if value is None else str(value)


def with_setups(runs: pd.DataFrame, configs: Mapping[str, Config]) -> tuple[pd.DataFrame, list[str]]:
    """``runs`` with the column ``setup`` (see :class:`Group`), and a warning per method that has several."""
    setups = pd.Series("", index=runs.index, dtype=object)
    warnings = []
    for (dataset, labels, method), method_runs in runs.groupby(METHOD, sort=False):
        rows = method_runs[IDENTITY].assign(pixels=_decodings(method_runs))
        identities = list(rows.drop_duplicates().itertuples(index=False, name=None))
        if len(identities) > 1:
            texts = _describe(identities, configs)
            setups[method_runs.index] = [texts[row] for row in rows.itertuples(index=False, name=None)]
            where = f"{method.title} on {setting_title(dataset, labels)}"
            warnings.append(
                f"{where}: runs of {len(identities)} different experiments, shown separately: "
                f"{' | '.join(texts.values())}"
            )
    return runs.assign(setup=setups), warnings


def _decodings(runs: pd.DataFrame) -> pd.Series:
    """The digest of the decoded images, for runs of an experiment whose images were decoded differently; else ""."""
    digests = runs["pixels"].fillna("").astype(object)
    return digests.where(runs.groupby(IDENTITY)["pixels"].transform("nunique") > 1, "")


def _describe(identities: list[tuple[str, ...]], configs: Mapping[str, Config]) -> dict[tuple[str, ...], str]:
    """A different description for each identity (config hash, version, scale, decoded images)."""
    names = differing(configs[identity[0]] for identity in identities)
    hashes, versions, scales, decodings = (len(set(column)) > 1 for column in zip(*identities, strict=True))
    texts = {}
    for identity in identities:
        config_hash, version, scale, pixels = identity
        parts = [f"{name} {value_of(configs[config_hash], name)}" for name in names[:_SHOWN]]
        parts += [f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
        parts += [f"version {version}"] if versions else []
        parts += [f"{scale} scale"] if scales else []
        parts += [f"images decoded as {pixels[:12] or 'not recorded'}"] if decodings else []
        texts[identity] = ", ".join(parts)
    if len(set(texts.values())) < len(texts) and hashes:
        texts = {identity: ", ".join(filter(None, (text, f"config {identity[0]}"))) for identity, text in texts.items()}
    return texts


def data_settings(runs: pd.DataFrame, configs: Mapping[str, Config]) -> pd.DataFrame:
    """One row per run: its test view and label splits. A split file is represented by its name."""

    def of(config: Config) -> list[str]:
        chosen = {**config, "splits": config.get("split_file") or config.get("splits")}
        return [str(chosen.get(name) or "not recorded") for name in DATA_SETTINGS]

    rows = [of(configs[config_hash]) for config_hash in runs["config_hash"]]
    return pd.DataFrame(rows, index=runs.index, columns=list(DATA_SETTINGS))


def data_setting_counts(runs: pd.DataFrame, configs: Mapping[str, Config]) -> dict[str, str]:
    """``{"test view": "center", "label splits": "ours (4 runs), published (8 runs)"}``."""
    texts = {}
    for name, column in data_settings(runs, configs).items():
        counts = column.value_counts()
        values = [value if len(counts) == 1 else f"{value} ({count} runs)" for value, count in counts.items()]
        texts[DATA_SETTINGS[str(name)]] = ", ".join(values)
    return texts
