"""Read run folders and records of runs into one frame. Damaged or inconsistent results are left out with a warning."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.errors import UserError, shown
from semilearn_ext.names import LONGEST, check_folder_name
from semilearn_ext.report.methods import MethodId, domains_of
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.record_files import EXPERIMENT_FILE, Source, read_experiment
from semilearn_ext.runs.find import MARKERS, find_folders
from semilearn_ext.runs.folder import OtherFormat, RunFolder, RunName
from semilearn_ext.runs.result import AVERAGES, PROTOCOLS
from semilearn_ext.settings.content import FOLDER

RUN = ["dataset", "labels", "method", "target", "seed"]
"""The columns that identify a run within one experiment."""
IDENTITY = ["config_hash", "version", "scale"]
"""The columns that must be equal for runs to be averaged."""
COLUMNS = [*RUN, *PROTOCOLS, *AVERAGES, "metrics", "seconds", *IDENTITY, "images", "pixels", "path", "source"]


class Records(NamedTuple):
    """The runs below some folders."""

    runs: pd.DataFrame
    """One row per finished run, with ``COLUMNS``. ``method`` is a :class:`MethodId`; accuracies are between 0 and 1
    (NaN for averaged weights that a run does not have); ``metrics`` contains everything that the last evaluation
    recorded; ``images`` and ``pixels`` are the SHA-256 of the dataset's images and of the decoded ones, or None.
    Everything else is read from ``source``;
    ``path`` identifies the run in messages."""
    unfinished: pd.DataFrame
    """One row per run without a result: ``dataset``, ``target`` and ``path``."""
    warnings: list[str]


def read_records(roots: Sequence[Path]) -> Records:
    """Every run at or below ``roots`` once. Results of the same run that differ are all left out."""
    runs, unfinished, warnings = read_all(roots)
    runs, duplicates = _without_duplicates(runs)
    return Records(runs, unfinished, [*warnings, *duplicates, *different_images(runs)])


def read_all(roots: Sequence[Path], *, strict: bool = False) -> Records:
    """All results at or below ``roots``, in run folders and in records, including duplicates.

    Args:
        strict: raise an error for damaged results; those of another format are left out with a warning in any case.
    """
    warnings: list[str] = []
    rows: list[dict[str, Any]] = []
    unfinished: list[dict[str, Any]] = []
    own_data: dict[str, str] = {}
    for path, names in find_folders(roots, {*MARKERS, EXPERIMENT_FILE}):
        try:
            if EXPERIMENT_FILE in names:
                rows += [_row(run, run.result, str(run.path)) for run in read_experiment(path)]
                continue
            folder = RunFolder(path)
            if folder.is_finished:
                row = read_run(folder)
                rows.append({**row, "dataset": _dataset(row["dataset"], folder, row["config_hash"], own_data)})
            elif name := RunName.from_path(path):
                dataset = _dataset(name.dataset, folder, str(path), own_data)
                unfinished.append({"dataset": dataset, "target": name.target, "path": path})
        except UserError as error:
            if strict and not isinstance(error, OtherFormat):
                raise
            warnings.append(f"{error}; left out")
    runs = pd.DataFrame(rows, columns=COLUMNS).sort_values([*RUN, *IDENTITY], kind="stable", ignore_index=True)
    return Records(runs, pd.DataFrame(unfinished, columns=["dataset", "target", "path"]), warnings)


def read_run(folder: RunFolder) -> dict[str, Any]:
    """One finished run as a row. Raises a UserError if its result is damaged or inconsistent."""
    result, where = folder.read_checked_result(), str(folder.result_file)
    row = _row(folder, result, where)
    written = RunName(row["dataset"], row["labels"], row["method"].name, row["target"], row["seed"])
    named = RunName.from_path(folder.path)
    if named is not None and named != written:
        raise UserError(f"{where}: is the result of a different run, {written.path}")
    return row


def _row(source: Source, result: Mapping[str, Any], where: str) -> dict[str, Any]:
    check_fields(result, where)
    domains = domains_of(result["dataset"])
    if domains and result["target_domain"] not in domains:
        raise UserError(f"{where}: {result['target_domain']!r} is not a domain of {result['dataset']}")
    return {
        "dataset": result["dataset"],
        "labels": result["labels_per_class"],
        "method": MethodId.of_record(result),
        "target": result["target_domain"],
        "seed": result["seed"],
        **{protocol: float(result["top1"].get(protocol, math.nan)) for protocol in (*PROTOCOLS, *AVERAGES)},
        "metrics": {name: value for name, value in result["metrics"].items() if math.isfinite(value)},
        "seconds": float(result["seconds"]),
        **{name: result[name] for name in IDENTITY},
        "images": result.get("images_sha256"),
        "pixels": result.get("pixels_sha256"),
        "path": source.path,
        "source": source,
    }


def check_fields(result: Mapping[str, Any], where: str) -> None:
    """Raise an error if a field of a result is missing or has an invalid value."""
    missing = [name for name in _FIELDS if name not in result]
    if missing:
        raise UserError(f"{where}: not the result of a run: no {', '.join(missing)}")
    for name, (is_valid, expected) in {**_FIELDS, **_OPTIONAL}.items():
        if not is_valid(result.get(name)):
            raise UserError(f"{where}: damaged: {name} is {shown(result[name])}, expected {expected}")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 2 * LONGEST and value.isprintable()


def _is_folder(value: Any) -> bool:
    """Whether ``value`` is a valid folder name, for runs and records."""
    try:
        return isinstance(value, str) and value.isprintable() and bool(check_folder_name(value, ""))
    except UserError:
        return False


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


_FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("title", "config_hash", "version", "scale"), (_is_name, "a name")),
    **dict.fromkeys(("dataset", "base", "target_domain"), (_is_folder, "a name")),
    **dict.fromkeys(("labels_per_class", "seed", "iterations"), (_is_count, "a count")),
    "plugins": (lambda value: isinstance(value, list) and all(map(_is_folder, value)), "a list of names"),
    "variant": (lambda value: value == "" or _is_folder(value), "a name or nothing"),
    "top1": (
        lambda value: (
            isinstance(value, dict)
            and value.keys() >= set(PROTOCOLS)
            and all(_is_number(share) and 0 <= share <= 1 for share in value.values())
        ),
        f"shares between 0 and 1 for {', '.join(PROTOCOLS)}",
    ),
    "metrics": (
        lambda value: (
            isinstance(value, dict)
            and all(map(_is_number, value.values()))
            and all(0 <= share <= 1 for name, share in value.items() if Metric(name).is_accuracy)
        ),
        "numbers by name, accuracies between 0 and 1",
    ),
    "seconds": (lambda value: _is_number(value) and math.isfinite(value), "a finite number"),
}


_OPTIONAL: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(
        ("images_sha256", "pixels_sha256"), (lambda value: value is None or _is_name(value), "a digest or null")
    ),
}


def _dataset(name: str, folder: RunFolder, key: str, known: dict[str, str]) -> str:
    """``name`` or, for a user's own data, their own name. ``known`` caches these names by ``key``."""
    if name != FOLDER:
        return name
    if key not in known:
        config = folder.read_config() if folder.config_file.exists() else {}
        named = [str(config[setting]) for setting in ("dataset_name", "data_dir") if config.get(setting)]
        known[key] = f"{FOLDER} {Path(named[0]).name}" if named else FOLDER
    return known[key]


def different_images(runs: pd.DataFrame) -> list[str]:
    """One line per dataset whose runs were trained on different images, or on the same images decoded differently."""
    warnings = []
    for dataset, dataset_runs in runs.groupby("dataset", sort=False):
        if dataset_runs["images"].nunique() > 1:
            warnings.append(f"{dataset}: the images are not the same in all runs: {_counts(dataset_runs['images'])}")
        elif dataset_runs["pixels"].nunique() > 1:
            for size, same_size in dataset_runs.groupby(_image_sizes(dataset_runs), sort=False):
                if same_size["pixels"].nunique() > 1:
                    warnings.append(
                        f"{dataset}: the images were not decoded in the same way at {size} px in all runs, for example "
                        f"by different versions of Pillow: {_counts(same_size['pixels'])}"
                    )
    return warnings


def _counts(digests: pd.Series) -> str:
    counts = digests.value_counts().items()
    return "SHA-256 " + ", ".join(f"{str(digest)[:12]} ({count} runs)" for digest, count in counts)


def _image_sizes(runs: pd.DataFrame) -> pd.Series:
    sizes = {}
    for run in runs.drop_duplicates("config_hash").itertuples():
        try:
            sizes[run.config_hash] = str(run.source.read_config().get("img_size"))
        except UserError:  # reported where the settings are shown
            sizes[run.config_hash] = "unknown"
    return runs["config_hash"].map(sizes)


def _without_duplicates(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep one of several equal results of a run, but none if they differ."""
    warnings, dropped = [], []
    duplicated = runs[runs.duplicated([*RUN, *IDENTITY], keep=False)]
    for _, results in duplicated.groupby([*RUN, *IDENTITY], sort=False):
        paths = [str(path) for path in results["path"]]
        if len(results.drop_duplicates(list(PROTOCOLS))) == 1:
            warnings.append(f"{', '.join(paths[1:])}: same result as {paths[0]}; counted once")
            dropped += list(results.index[1:])
        else:
            values = ", ".join(f"{value:.4f}" for value in results["last"])
            warnings.append(f"{', '.join(paths)}: different results of the same run ({values}); all left out")
            dropped += list(results.index)
    return runs.drop(index=dropped).reset_index(drop=True), warnings
