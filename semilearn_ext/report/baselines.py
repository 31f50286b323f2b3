"""Compare a method with its baseline: find the runs of the baseline, compute the change, and add notes about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.report.aggregate import Targets, incomplete_seeds, seed_means
from semilearn_ext.report.run_groups import GROUP, Config, Group, differing, value_of

# Settings in which a method with plug-ins may differ from its baseline.
_OF_THE_METHOD = {"algorithm", "lr_plugin", "plugin_weight"}


class Note(NamedTuple):
    """A note below a table. Notes that differ only in the setting are printed as one."""

    subject: str
    setting: str
    sentence: str


def note_lines(notes: Iterable[Note]) -> list[str]:
    """``FixMatch + SC (PACS, 10 labels per class; PACS, 5 labels per class): there are no runs of …``."""
    settings: dict[tuple[str, str], list[str]] = {}
    for note in dict.fromkeys(notes):
        settings.setdefault((note.subject, note.sentence), []).append(note.setting)
    return [f"{subject} ({'; '.join(where)}): {sentence}." for (subject, sentence), where in settings.items()]


def with_change(
    cells: pd.DataFrame, runs: pd.DataFrame, targets: Targets, configs: Mapping[str, Config]
) -> pd.DataFrame:
    """Add ``change``, the mean difference from the baseline over common seeds, and ``notes`` to ``cells``."""
    means = {Group(*key): seeds.set_index("seed")["value"] for key, seeds in seed_means(runs, targets).groupby(GROUP)}
    incomplete = incomplete_seeds(runs, targets)
    changes, notes = [], []
    for row in cells.itertuples():
        group = Group.of(row)
        baseline, about_baseline = find_baseline(row, cells, configs)
        change = float("nan")
        if baseline is not None:
            change, about_change = _change(group, baseline, means)
            about_baseline = [*about_baseline, *about_change]
        changes.append(change)
        notes.append((*_incomplete_notes(group, incomplete), *about_baseline))
    return cells.assign(change=changes, notes=notes)


def _change(group: Group, baseline: Group, means: Mapping[Group, pd.Series]) -> tuple[float, list[Note]]:
    if group not in means or baseline not in means:
        return float("nan"), [Note(group.title, group.setting, "no change is shown, because no seed is complete")]
    values, baseline_values = means[group], means[baseline]
    common = values.index.intersection(baseline_values.index)
    change = float((values[common] - baseline_values[common]).mean())
    if len(values) == len(baseline_values) == len(common):
        return change, []
    if len(common):
        sentence = f"the change from {baseline.title} is over {seeds_text(common)}, which both have"
    else:
        sentence = f"no change from {baseline.title} is shown, because they have no seed in common"
    return change, [Note(group.title, group.setting, sentence)]


def _incomplete_notes(group: Group, incomplete: pd.DataFrame) -> list[Note]:
    """One note per set of missing targets."""
    in_group = (incomplete["dataset"] == group.dataset) & (incomplete["labels"] == group.labels)
    in_group &= (incomplete["method"] == group.method) & (incomplete["setup"] == group.setup)
    return [
        Note(group.title, group.setting, f"{seeds_text(rows['seed'])} without {', '.join(missing)}, so not in the mean")
        for missing, rows in incomplete[in_group].groupby("missing", sort=False)
    ]


def find_baseline(row: Any, cells: pd.DataFrame, configs: Mapping[str, Config]) -> tuple[Group | None, list[Note]]:
    """The baseline of ``row`` of ``cells``, and notes about it.

    If there are several experiments with the baseline, the one with the same version, scale and shared settings is
    used, provided that there is exactly one.
    """
    group, baseline = Group.of(row), row.method.baseline
    if baseline is None:
        return None, []
    same_setting = (cells["dataset"] == row.dataset) & (cells["labels"] == row.labels)
    baselines = cells[same_setting & (cells["method"] == baseline)]
    if baselines.empty:
        sentence = f"there are no runs of {baseline.title}, so no change is shown"
        return None, [Note(group.title, group.setting, sentence)]
    candidates = [(other, differences(row, other, configs)) for other in baselines.itertuples()]
    if len(candidates) > 1:
        candidates = [(other, differ) for other, differ in candidates if not differ]
    if len(candidates) != 1:
        sentence = f"there are several experiments with {baseline.title} and none matches, so no change is shown"
        return None, [Note(group.title, group.setting, sentence)]
    other, differ = candidates[0]
    sentence = f"differs from {baseline.title} in more than the method: {'; '.join(differ)}"
    return Group.of(other), [Note(group.title, group.setting, sentence)] if differ else []


def differences(first: Any, second: Any, configs: Mapping[str, Config]) -> list[str]:
    """Shared settings, versions and scales in which two groups differ: ``["lr 0.1, not 0.2"]``."""
    a, b = configs[first.config_hash], configs[second.config_hash]
    shared = [name for name in differing((a, b)) if name in a and name in b and name not in _OF_THE_METHOD]
    differ = [f"{name} {value_of(a, name)}, not {value_of(b, name)}" for name in shared]
    for name in ("version", "scale"):
        if getattr(first, name) != getattr(second, name):
            differ.append(f"{name} {getattr(first, name)}, not {getattr(second, name)}")
    return differ


def seeds_text(seeds: Iterable[Any]) -> str:
    """``seed 3`` or ``seeds 1, 2, 4``."""
    numbers = sorted(int(seed) for seed in seeds)
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {', '.join(map(str, numbers))}"
