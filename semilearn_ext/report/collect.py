"""Add finished runs to existing records, without losing or changing any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from semilearn_ext.errors import UserError
from semilearn_ext.report.record_files import RecordedRun, experiment_folder, record_of, render
from semilearn_ext.report.record_sums import was_interrupted, write_summed
from semilearn_ext.report.records import IDENTITY, read_all
from semilearn_ext.runs.folder import RunFolder

_Key = tuple[Path, str, int]
"""The folder of the experiment in the records, target and seed."""


class Collected(NamedTuple):
    added: int
    known: int
    """Number of runs that were already recorded, or that were given twice."""
    unfinished: int
    warnings: list[str]


def collect(roots: Sequence[Path], out: Path) -> Collected:
    """Add every finished run below ``roots``, from run folders or records, to the records in ``out``.

    If two results of the same run differ, nothing is written.
    """
    runs: dict[_Key, RecordedRun] = {}
    if out.is_dir():
        existing = read_all([out])
        if existing.warnings:
            raise UserError(f"--out: {existing.warnings[0].removesuffix('; left out')}; nothing was added")
        trained = [row.path for row in existing.runs.itertuples() if isinstance(row.source, RunFolder)]
        if trained:
            raise UserError(f"--out: {out}: contains runs, such as {trained[0]}; choose a folder for records alone")
        runs = {_key(row): row.source for row in existing.runs.itertuples()}
    given = read_all(roots)
    before, known = len(runs), 0
    changed = {folder for folder in {key[0] for key in runs} if was_interrupted(out / folder)}
    for row in given.runs.itertuples():
        try:
            run = _recorded(row.source, row.dataset)
        except UserError as error:
            given.warnings.append(f"{error}; left out")
            continue
        key = _key(row)
        if key in runs:
            _check_same(runs[key], run)
            known += 1
        # An interrupted write may have left a run without its evaluations.
        if key not in runs or not runs[key].metrics:
            runs[key] = run
            changed.add(key[0])
    for folder in sorted(changed):
        write_summed(out / folder, render([run for key, run in runs.items() if key[0] == folder]))
    return Collected(len(runs) - before, known, len(given.unfinished), given.warnings)


def _key(row: Any) -> _Key:
    identity = (getattr(row, name) for name in IDENTITY)
    return experiment_folder(row.dataset, row.labels, row.method.name, *identity), row.target, row.seed


def _recorded(source: RunFolder | RecordedRun, dataset: str) -> RecordedRun:
    """The run as recorded; ``dataset`` distinguishes a user's own datasets."""
    run = record_of(source) if isinstance(source, RunFolder) else source
    return replace(run, result={**run.result, "dataset": dataset})


def _check_same(first: RecordedRun, second: RecordedRun) -> None:
    """Raise an error if two results of the same run differ in anything but the time."""
    differ = [name for name, value in _numbers(first).items() if _numbers(second).get(name) != value]
    if differ or _numbers(first).keys() != _numbers(second).keys():
        name = differ[0] if differ else "recorded metrics"
        values = [_numbers(run).get(name) for run in (first, second)]
        raise UserError(
            f"{first.path} and {second.path}: different results of the same run ({name}: {values[0]} and "
            f"{values[1]}); nothing was added; remove one of them"
        )


def _numbers(run: RecordedRun) -> dict[str, Any]:
    metrics = {name: value for name, value in run.result["metrics"].items() if name != "seconds"}
    return {"iterations": run.result["iterations"], **run.result["top1"], **metrics}
