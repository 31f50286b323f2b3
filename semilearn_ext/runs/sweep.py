"""The runs of a sweep (config files x algorithms x label counts x targets x seeds) and the state of each."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError, counted
from semilearn_ext.registry import expand
from semilearn_ext.runs.find import find_runs
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.job import Job, State
from semilearn_ext.runs.ownership import check_content
from semilearn_ext.settings import Settings, config_hash
from semilearn_ext.settings.content import cached_folder_digests
from semilearn_ext.settings.domains import targets_of
from semilearn_ext.settings.fingerprint import differences, identity, run_key
from semilearn_ext.settings.image_cache import known_pixels_of_own_images
from semilearn_ext.settings.load import COMMAND_LINE, Raw, read_yaml, resolve

MAX_RUNS = 100_000


@dataclass(frozen=True)
class Grid:
    """The values to combine. An empty list means the value of the config file."""

    configs: Sequence[Path] = ()
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Settings from the command line, applied to all runs."""
    algorithms: Sequence[str] = ()
    targets: Sequence[str] = ()
    seeds: Sequence[int] = ()
    labels: Sequence[int] = ()
    points: Sequence[Mapping[str, Any]] = ()
    """Combinations of further settings, each with its own ``variant``."""


@cached_folder_digests()
def experiments(grid: Grid) -> dict[Path, Settings]:
    """Every run once, by folder: runs with more labels first, and the first seed of all methods before the second."""
    runs: dict[Path, Settings] = {}
    for settings in sorted(_combinations(grid), key=lambda settings: (-settings.labels_per_class, settings.seed)):
        path = run_path(settings)
        known = runs.setdefault(path, settings)
        if known is not settings and config_hash(known) != config_hash(settings):
            raise UserError(
                f"{path}: two different experiments share this folder; they differ in "
                f"{differences(identity(known), identity(settings))}; set 'variant' in one of the configs"
            )
    return runs


def _combinations(grid: Grid) -> Iterator[Settings]:
    files = [read_yaml(path) for path in grid.configs] or [{}]
    axes = {
        "labels_per_class": grid.labels,
        "seed": grid.seeds,
        "algorithm": [algorithm for name in grid.algorithms for algorithm in expand(name)],
        "target_domain": grid.targets,
    }
    given = {name: values for name, values in axes.items() if values}
    total = math.prod(len(values) for values in (files, grid.points or [{}], *given.values()))
    if total > MAX_RUNS:
        raise UserError(f"{COMMAND_LINE}: {total} combinations are too many; a sweep can contain at most {MAX_RUNS}")
    for file, point, *values in itertools.product(files, grid.points or [{}], *given.values()):
        chosen = {**grid.overrides, **point, **dict(zip(given, values, strict=True))}
        yield from _for_each_target({**file, **{name: Raw(value, COMMAND_LINE) for name, value in chosen.items()}})


def _for_each_target(raw: Mapping[str, Raw]) -> Iterator[Settings]:
    settings = resolve(raw)
    if settings.overwrite:
        raise UserError(
            f"{settings.where('overwrite')}: a sweep does not overwrite runs; delete them by hand, or choose "
            f"another --save_dir"
        )
    for target in targets_of(settings):
        origin = raw["target_domain"].origin if "target_domain" in raw else "default"
        yield resolve({**raw, "target_domain": Raw(target, origin)})


@cached_folder_digests()
def read_jobs(runs: Mapping[Path, Settings]) -> list[Job]:
    """The state of every run. A folder with a different experiment, or with a damaged result, is an error."""
    jobs = []
    for path, settings in runs.items():
        folder, job = RunFolder(path), Job.read(path)
        done = job.status.state is State.DONE
        if not done or not _is_result_of(folder.read_result(), settings):
            check_content(folder, settings)
            if done:
                folder.read_checked_result()
        jobs.append(job)
    return jobs


def _is_result_of(result: Mapping[str, Any], settings: Settings) -> bool:
    expected = {"config_hash": config_hash(settings), **run_key(settings)}
    pixels = (result.get("pixels_sha256"), known_pixels_of_own_images(settings))
    same_images = not all(pixels) or len(set(pixels)) == 1
    return same_images and all(result.get(name) == value for name, value in expected.items())


def find(folder: Path) -> list[Job]:
    """All runs at or below ``folder``."""
    jobs = [Job.read(run.path) for run in find_runs([folder])]
    if not jobs:
        raise UserError(f"{folder}: contains no runs")
    return jobs


def count(jobs: Sequence[Job]) -> str:
    """``"40 runs: 12 done, 28 pending"``."""
    counts = Counter(job.status.state for job in jobs)
    parts = [f"{counts[state]} {state.value}" for state in State if counts[state]]
    return f"{counted(len(jobs), 'run')}: {', '.join(parts)}"
