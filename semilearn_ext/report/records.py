"""Run folders on disk to one frame. What cannot be trusted is named in a warning and left out."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.errors import UserError
from semilearn_ext.report.names import canonical
from semilearn_ext.report.summary import PROTOCOLS
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings.domains import DOMAINS, FOLDER
from semilearn_ext.settings.load import read_yaml

RUN = ["dataset", "labels", "method", "target", "seed"]
"""What a run is one of; within these columns a table averages over targets and seeds."""
IDENTITY = ["config_hash", "version", "scale"]
"""What runs have to agree in to be averaged."""
COLUMNS = [*RUN, *PROTOCOLS, "seconds", *IDENTITY, "path"]

_TEXTS = ("dataset", "algorithm", "target_domain", "config_hash", "version", "scale")
_COUNTS = ("labels_per_class", "seed", "iterations")


class Found(NamedTuple):
    """What lies below some folders."""

    runs: pd.DataFrame
    """A row a finished run: ``COLUMNS``. Accuracies are shares, ``method`` is the canonical name."""
    unfinished: pd.DataFrame
    """A row a run without a result: ``RUN`` and ``path``."""
    warnings: list[str]


def find_runs(roots: Sequence[Path]) -> Found:
    """Read every run folder below ``roots``, each once."""
    warnings: list[str] = []
    rows: list[dict[str, Any]] = []
    unfinished: list[dict[str, Any]] = []
    own_folders: dict[str, str] = {}
    for path in _run_folders(roots):
        try:
            if RunFolder(path).is_finished:
                rows.append(_with_own_folder(read_run(path), own_folders))
            elif told := told_by_path(path):
                unfinished.append(_with_own_folder({**told, "path": path}, own_folders))
        except UserError as error:
            warnings.append(f"{error}; left out")
    runs = pd.DataFrame(rows, columns=COLUMNS)
    kept, doubled = _without_duplicates(runs)
    return Found(kept, pd.DataFrame(unfinished, columns=[*RUN, "path"]), warnings + doubled)


def _run_folders(roots: Iterable[Path]) -> Iterator[Path]:
    """Folders that hold a config or a result, links followed, in the order of their names."""
    seen: set[str] = set()
    for root in roots:
        if not root.is_dir():
            raise UserError(f"{root}: no such folder; expected one that holds runs")
        for folder, below, files in os.walk(root, followlinks=True):
            real = os.path.realpath(folder)
            if real in seen:
                below.clear()
                continue
            seen.add(real)
            below.sort()
            if "result.json" in files or "config.yaml" in files:
                below.clear()
                yield Path(folder)


def read_run(path: Path) -> dict[str, Any]:
    """One finished run as a row, or a UserError that says why its result cannot be trusted."""
    folder = RunFolder(path)
    result, where = folder.read_result(), folder.result_file
    _check_fields(result, where)
    row = {
        "dataset": result["dataset"],
        "labels": result["labels_per_class"],
        "method": canonical(result["algorithm"]),
        "target": result["target_domain"],
        "seed": result["seed"],
        **{protocol: float(result["top1"][protocol]) for protocol in PROTOCOLS},
        "seconds": float(result["seconds"]),
        **{name: result[name] for name in IDENTITY},
        "path": path,
    }
    known = DOMAINS.get(row["dataset"])
    if known and row["target"] not in known:
        raise UserError(f"{where}: {row['target']!r} is not a domain of {row['dataset']}")
    told = told_by_path(path)
    if told and (differ := [name for name in RUN if told[name] != row[name]]):
        said = ", ".join(f"{name} {row[name]} in a folder of {name} {told[name]}" for name in differ)
        raise UserError(f"{where}: belongs to another run ({said})")
    return row


def _check_fields(result: Mapping[str, Any], where: Path) -> None:
    """Refuse a result that lacks what a run writes, or holds what no run measures."""
    top1 = result.get("top1")
    numbers = {f"top1 {name}": value for name, value in top1.items()} if isinstance(top1, dict) else {}
    numbers["seconds"] = result.get("seconds")
    missing = [name for name in (*_TEXTS, *_COUNTS, "seconds", "top1") if name not in result]
    missing += [f"top1 {protocol}" for protocol in PROTOCOLS if f"top1 {protocol}" not in numbers]
    if missing:
        raise UserError(f"{where}: not a run's result: no {', '.join(missing)}")
    for name in _TEXTS:
        if not isinstance(result[name], str) or not result[name]:
            raise UserError(f"{where}: damaged: {name} is {result[name]!r}, expected a name")
    for name in _COUNTS:
        if type(result[name]) is not int or result[name] < 0:
            raise UserError(f"{where}: damaged: {name} is {result[name]!r}, expected a count")
    for name, value in numbers.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise UserError(f"{where}: damaged: {name} is {value!r}, expected a number")
        if name != "seconds" and not 0 <= value <= 1:
            raise UserError(f"{where}: damaged: {name} is {value!r}, expected a share between 0 and 1")


def told_by_path(path: Path) -> dict[str, Any] | None:
    """What ``…/<dataset>/<labels>lpc/<method>/<target>/seed<k>`` says of a run; None for a folder of another form."""
    parts = Path(os.path.abspath(path)).parts[-5:]
    if len(parts) < 5:
        return None
    dataset, labels, method, target, seed = parts
    count, number = re.fullmatch(r"(\d+)lpc", labels), re.fullmatch(r"seed(\d+)", seed)
    if count is None or number is None:
        return None
    values = (dataset, int(count[1]), canonical(method), target, int(number[1]))
    return dict(zip(RUN, values, strict=True))


def _with_own_folder(row: dict[str, Any], known: dict[str, str]) -> dict[str, Any]:
    """Anybody's own data are told apart by the name of their folder. ``known`` remembers it by config hash."""
    if row["dataset"] != FOLDER:
        return row
    key = row.get("config_hash", str(row["path"]))
    if key not in known:
        raw = read_yaml(RunFolder(row["path"]).config_file)
        known[key] = Path(str(raw["data_dir"].value)).name if "data_dir" in raw else FOLDER
    return {**row, "dataset": f"{FOLDER} {known[key]}"}


def _without_duplicates(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One of several equal results of a run; none of several that differ."""
    warnings, dropped = [], []
    doubled = runs[runs.duplicated([*RUN, *IDENTITY], keep=False)]
    for _, same in doubled.groupby([*RUN, *IDENTITY], sort=False):
        paths = [str(path) for path in same["path"]]
        if len(same.drop_duplicates(list(PROTOCOLS))) == 1:
            warnings.append(f"{', '.join(paths[1:])}: the same result as {paths[0]}; counted once")
            dropped += list(same.index[1:])
        else:
            shown = ", ".join(f"{value:.4f}" for value in same["last"])
            warnings.append(f"{', '.join(paths)}: results of one run that differ ({shown}); all left out")
            dropped += list(same.index)
    return runs.drop(index=dropped).reset_index(drop=True), warnings
