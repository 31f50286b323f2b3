"""Records of runs: small files from which tables are rebuilt.

They are in ``<dataset>/<labels>lpc/<method>/<hash>-<version>-<scale>/``:

experiment.yaml   what all runs have in common: method, benchmark, version, scientific settings
runs.csv          one line per run: target, seed, every protocol and metric, checksums, environment
curves.csv        one line per evaluation: every metric with four significant digits
SHA256SUMS        checksums of the three, see record_sums.py
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import yaml

from semilearn_ext import documents
from semilearn_ext.errors import UserError, shown
from semilearn_ext.names import check_folder_name
from semilearn_ext.report.csv_cells import from_cell, to_cell
from semilearn_ext.report.record_sums import check_sums
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.record_file import LARGEST_RECORD
from semilearn_ext.runs.result import AVERAGES, FORMAT, PROTOCOLS, scalars
from semilearn_ext.settings.schema import KEYS

EXPERIMENT_FILE, RUNS_FILE, CURVES_FILE = "experiment.yaml", "runs.csv", "curves.csv"
Config = Mapping[str, Any]

_NAMED_FILES = ("split_file", "pretrain_path")
_SHARED = ("format", "dataset", "labels_per_class", "base", "plugins", "variant", "step", "title")
_IDENTITY = ("config_hash", "version", "scale")
_RUN = ("target_domain", "seed")
_OF_RUN = (*_RUN, "iterations", "seconds")
_CHECKSUMS = ("images_sha256", "labelled_sha256", "details_sha256")
_PIXELS = "pixels_sha256"
"""A checksum that a run without an image cache does not have."""
_REQUIRED = {RUNS_FILE: _OF_RUN, CURVES_FILE: _RUN}
"""The columns that a file must have."""
_TOP1, _ENVIRONMENT, _METRICS = "top1.", "environment.", "metrics."
_NOT_RECORDED = {"platform"}
"""Properties of the machine that do not matter for a result."""


class Source(Protocol):
    """The source of a run's data: its folder, or its line in a record."""

    @property
    def path(self) -> Path: ...
    def read_result(self) -> dict[str, Any]: ...
    def read_config(self) -> dict[str, Any]: ...
    def read_environment(self) -> dict[str, Any]: ...
    def read_metrics(self) -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class RecordedRun:
    """One run of a record."""

    path: Path
    """``<folder>/runs.csv:<line>``, for messages."""
    result: dict[str, Any]
    """The fields of ``result.json`` without options, which are part of the config."""
    config: Config
    """The scientific settings and the options."""
    environment: dict[str, Any]
    metrics: list[dict[str, Any]]

    def read_result(self) -> dict[str, Any]:
        return self.result

    def read_config(self) -> dict[str, Any]:
        return dict(self.config)

    def read_environment(self) -> dict[str, Any]:
        return self.environment

    def read_metrics(self) -> list[dict[str, Any]]:
        return self.metrics


def record_of(folder: RunFolder) -> RecordedRun:
    """A finished run in the form of a record."""
    split = folder.read_split()
    if "train_x" not in split:
        raise UserError(f"{folder.split_file}: damaged: no train_x")
    environment = {name: value for name, value in folder.read_environment().items() if name not in _NOT_RECORDED}
    labelled = json.dumps(sorted(map(str, split["train_x"])))
    checksum = hashlib.sha256(labelled.encode()).hexdigest()
    return RecordedRun(
        path=folder.path,
        result={**folder.read_result(), "labelled_sha256": checksum},
        config=scientific(folder.read_config()),
        environment=environment,
        metrics=folder.read_metrics(),
    )


def scientific(flat: Config) -> Config:
    """The settings that are part of the config hash. Files are represented by their names."""
    kept = {name: value for name, value in flat.items() if name not in KEYS or KEYS[name].metadata["scientific"]}
    files = {name: Path(str(flat[name])).name for name in _NAMED_FILES if flat.get(name)}
    return {**kept, **files}


def significant(value: float) -> float:
    """``value`` with four significant digits, as used for curves."""
    return float(f"{value:.4g}")


def experiment_folder(dataset: str, labels: int, method: str, config_hash: str, version: str, scale: str) -> Path:
    """The folder of an experiment in the records."""
    names = (dataset, f"{labels}lpc", method, f"{config_hash}-{version}-{scale}")
    return Path(*(check_folder_name(name.replace(" ", "_"), "record") for name in names))


def render(runs: Sequence[RecordedRun]) -> dict[str, str]:
    """The files of an experiment, by name, in the order in which they are written: the one that makes a folder a record
    comes last, and evaluations after their runs. The result does not depend on the order of the runs."""
    runs = sorted(runs, key=_key)
    first = runs[0]
    shared = {name: first.result.get(name) for name in (*_SHARED, *_IDENTITY)}
    about = yaml.safe_dump({**shared, "settings": dict(first.config)}, sort_keys=False, width=120)
    curves = [dict(zip(_RUN, _key(run), strict=True)) | _curve_row(line) for run in runs for line in run.metrics]
    protocols = [_TOP1 + name for name in (*PROTOCOLS, *AVERAGES)]
    return {
        RUNS_FILE: _csv([_run_row(run) for run in runs], [*_OF_RUN, *protocols]),
        CURVES_FILE: _csv(curves, [*_RUN, "iteration", "epoch"]),
        EXPERIMENT_FILE: about,
    }


def _key(run: RecordedRun) -> tuple[str, int]:
    return run.result["target_domain"], run.result["seed"]


def _run_row(run: RecordedRun) -> dict[str, Any]:
    result = run.result
    metrics = {name: value for name, value in result["metrics"].items() if name != "seconds"}
    return {
        **{name: result[name] for name in _OF_RUN},
        **_flat(_TOP1, result["top1"]),
        **_flat(_METRICS, metrics),
        **{name: result.get(name) for name in _CHECKSUMS},
        **({_PIXELS: result[_PIXELS]} if result.get(_PIXELS) else {}),
        **_flat(_ENVIRONMENT, run.environment),
    }


def _curve_row(record: Mapping[str, Any]) -> dict[str, Any]:
    numbers = scalars(record).items()
    values = {name: value for name, value in numbers if math.isfinite(value) and name not in ("seconds", *_RUN)}
    return {name: value if isinstance(value, int) else f"{value:.4g}" for name, value in values.items()}


def _flat(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(f"{prefix}{name}.", value) if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _csv(rows: Sequence[Mapping[str, Any]], first: Sequence[str]) -> str:
    """A CSV with the columns ``first``, followed by all others sorted by name. Missing values are empty."""
    names = {name for row in rows for name in row} | {*_RUN}
    columns = [*(name for name in first if name in names), *sorted(names - {*first})]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(to_cell, columns))
    writer.writerows([[_cell(row.get(name)) for name in columns] for row in rows])
    return text.getvalue()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return to_cell(value) if isinstance(value, str) else json.dumps(value)


def read_experiment(folder: Path) -> list[RecordedRun]:
    """Read the runs from the files that :func:`render` returns. Errors name the file and line."""
    limits = {EXPERIMENT_FILE: documents.YAML_BYTES, RUNS_FILE: LARGEST_RECORD, CURVES_FILE: LARGEST_RECORD}
    contents = {name: documents.read_bytes(folder / name, limit, follow=False) for name, limit in limits.items()}
    about = documents.parse_yaml(_text(contents, folder / EXPERIMENT_FILE), str(folder / EXPERIMENT_FILE))
    settings = about.pop("settings", None) if isinstance(about, dict) else None
    if not isinstance(settings, dict) or about.get("format") != FORMAT:
        raise UserError(f"{folder / EXPERIMENT_FILE}: not a record of format {FORMAT}; collect the runs again")
    curves: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for where, row in _rows(contents, folder / CURVES_FILE):
        key = (row.pop("target_domain"), row.pop("seed"))
        curves.setdefault(key, []).append({name: _number(value, where) for name, value in row.items() if value})
    runs: dict[tuple[str, str], RecordedRun] = {}
    for where, row in _rows(contents, folder / RUNS_FILE):
        key = (row["target_domain"], row["seed"])
        if key in runs:
            raise UserError(f"{where}: the same run as {runs[key].path}; keep one of the two lines")
        runs[key] = _recorded(row, about, settings, curves.pop(key, []), where)
    if curves:
        target, seed = next(iter(curves))
        raise UserError(f"{folder / CURVES_FILE}: target {target}, seed {seed}: no such run in {RUNS_FILE}")
    check_sums(folder, contents)  # last: a message of the lines above says more
    return list(runs.values())


def _recorded(
    row: dict[str, str], about: Config, settings: Config, metrics: list[dict[str, Any]], where: str
) -> RecordedRun:
    def part(prefix: str) -> dict[str, str]:
        return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix) and value}

    def numbers(prefix: str) -> dict[str, Any]:
        return {name: _number(value, where) for name, value in part(prefix).items()}

    result = {
        **about,
        "target_domain": row["target_domain"],
        **{name: _number(row[name], where) for name in _OF_RUN if name != "target_domain"},
        "top1": numbers(_TOP1),
        "metrics": numbers(_METRICS),
        **{name: row[name] for name in (*_CHECKSUMS, _PIXELS) if row.get(name)},
    }
    environment = part(_ENVIRONMENT)
    packages = part(f"{_ENVIRONMENT}packages.")
    environment = {name: value for name, value in environment.items() if not name.startswith("packages.")}
    return RecordedRun(Path(where), result, settings, {**environment, "packages": packages}, metrics)


def _text(contents: Mapping[str, bytes], file: Path) -> str:
    return documents.decoded(contents[file.name], str(file))


def _rows(contents: Mapping[str, bytes], file: Path) -> Iterable[tuple[str, dict[str, str]]]:
    """Yield the location and the values of every line."""
    reader = csv.reader(io.StringIO(_text(contents, file)))
    try:
        columns = [from_cell(name) for name in next(reader, [])]
        absent = [name for name in _REQUIRED[file.name] if columns.count(name) != 1]
        if absent or len(set(columns)) < len(columns):
            raise UserError(f"{file}: damaged: its first line needs {', '.join(absent or columns)}, each once")
        for row in reader:
            where = f"{file}:{reader.line_num}"
            if len(row) != len(columns):
                raise UserError(f"{where}: damaged: {len(row)} values in {len(columns)} columns")
            yield where, dict(zip(columns, map(from_cell, row), strict=True))
    except csv.Error as error:  # an endless value, or a line break that is none
        raise UserError(f"{file}:{reader.line_num}: damaged: {error}") from None


def _number(text: str, where: str) -> Any:
    try:
        value = int(text) if text.lstrip("-").isdecimal() else float(text)
        float(value)
    except (ValueError, OverflowError):
        raise UserError(f"{where}: damaged: {shown(text)} is not a number") from None
    return value
