"""From runs to averages, pure pandas: the mean over targets of each seed, then mean and deviation over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.kinds import GROUP, Config, differing, value_of
from semilearn_ext.report.names import base_of, method_title, setting_title
from semilearn_ext.report.paper_numbers import KEY
from semilearn_ext.settings.domains import DOMAINS

Targets = Mapping[str, Sequence[str]]

# What a method and its base differ in by being what they are.
_OF_THE_METHOD = {"algorithm", "lr_plugin", "plugin_weight"}


class Group(NamedTuple):
    """Runs that are averaged."""

    dataset: str
    labels: int
    method: str
    kind: str

    @property
    def title(self) -> str:
        return method_title(self.method, self.kind)

    @property
    def setting(self) -> str:
        return setting_title(self.dataset, self.labels)


class Note(NamedTuple):
    """Something to print below a table: of what, where, what. Several settings with one sentence are printed once."""

    subject: str
    setting: str
    sentence: str


def note_lines(notes: Iterable[Note]) -> list[str]:
    """``FixMatch + SC (PACS, 10 labels a class; PACS, 5 labels a class): no runs of …``, each sentence once."""
    settings: dict[tuple[str, str], list[str]] = {}
    for note in dict.fromkeys(notes):
        settings.setdefault((note.subject, note.sentence), []).append(note.setting)
    return [f"{subject} ({'; '.join(where)}): {sentence}." for (subject, sentence), where in settings.items()]


def all_targets(runs: pd.DataFrame, unfinished: pd.DataFrame) -> Targets:
    """The targets a mean has to cover, by dataset: all its domains, or for anybody's own data all that were run."""
    there = pd.concat([runs[["dataset", "target"]], unfinished[["dataset", "target"]]])
    found = {dataset: tuple(sorted(set(targets))) for dataset, targets in there.groupby("dataset")["target"]}
    return {dataset: DOMAINS.get(dataset, targets) for dataset, targets in found.items()}


def seed_means(runs: pd.DataFrame, targets: Targets) -> pd.DataFrame:
    """A row a group and seed: ``accuracy``, the mean over its targets, and ``missing``, the targets it lacks."""
    rows = []
    for key, same in runs.groupby([*GROUP, "seed"], sort=False):
        there = set(same["target"])
        missing = tuple(target for target in targets[key[0]] if target not in there)
        rows.append((*key, same["accuracy"].mean(), missing))
    return pd.DataFrame(rows, columns=[*GROUP, "seed", "accuracy", "missing"])


def over_seeds(seeds: pd.DataFrame) -> pd.DataFrame:
    """A row a group: ``mean``, ``std`` (ddof 1) and ``n`` over the seeds that lack no target."""
    complete = seeds[seeds["missing"].str.len() == 0]
    found = complete.groupby(GROUP, sort=False)["accuracy"].agg(mean="mean", std="std", n="count").reset_index()
    cells = seeds[GROUP].drop_duplicates().merge(found, on=GROUP, how="left")
    return cells.assign(n=cells["n"].fillna(0).astype(int))


def over_targets(runs: pd.DataFrame) -> pd.DataFrame:
    """A row a group and target: ``mean``, ``std`` (ddof 1) and ``n`` over all seeds that ran it."""
    grouped = runs.groupby([*GROUP, "target"], sort=False)["accuracy"]
    return grouped.agg(mean="mean", std="std", n="count").reset_index()


def results(
    runs: pd.DataFrame, targets: Targets, configs: Mapping[str, Config], beside_the_paper: bool
) -> pd.DataFrame:
    """A row a group with everything tables show of it.

    ``mean``, ``std``, ``n``; ``base`` and ``change`` against it; ``paper_mean``, ``paper_std`` and ``difference`` (ours
    less the paper's); ``seconds`` a run; ``scale``, ``version``, ``config_hash``; ``notes`` to print below.
    """
    seeds = seed_means(runs, targets)
    about = runs.groupby(GROUP, sort=False).agg(
        runs=("seed", "size"),
        seconds=("seconds", "mean"),
        scale=("scale", "first"),
        version=("version", "first"),
        config_hash=("config_hash", "first"),
    )
    cells = over_seeds(seeds).merge(about.reset_index(), on=GROUP)
    cells = _with_change(cells, seeds, configs)
    paper = paper_numbers.accuracy()
    cells = cells.merge(paper if beside_the_paper else paper.iloc[:0], on=KEY, how="left")
    cells["difference"] = cells["mean"] - cells["paper_mean"]
    return cells.sort_values(GROUP, key=sort_key, ignore_index=True)


def sort_key(column: pd.Series) -> pd.Series:
    """Datasets, methods and label counts (the larger first) in the paper's order, others behind them by name."""
    if column.name == "labels":
        return -column
    if column.name == "kind":
        return column
    paper = paper_numbers.accuracy()
    order = list(paper["dataset"].unique()) if column.name == "dataset" else paper_numbers.method_order()
    places = {name: place for place, name in enumerate([*order, *sorted(set(column) - set(order))])}
    return column.map(places)


def _with_change(cells: pd.DataFrame, seeds: pd.DataFrame, configs: Mapping[str, Config]) -> pd.DataFrame:
    """``base``, ``change`` and ``notes``: the change is the mean over the seeds that both have for all targets."""
    is_complete = seeds["missing"].str.len() == 0
    complete, incomplete = seeds[is_complete], seeds[~is_complete]
    by_group = {Group(*key): same.set_index("seed")["accuracy"] for key, same in complete.groupby(GROUP)}
    changes: list[tuple[str | None, float, tuple[Note, ...]]] = []
    for row in cells.itertuples():
        group = Group(row.dataset, row.labels, row.method, row.kind)
        notes = incomplete_notes(group, incomplete)
        base, about_base = find_base(row, cells, configs)
        change = float("nan")
        if base is not None and group in by_group and base in by_group:
            ours, theirs = by_group[group], by_group[base]
            common = ours.index.intersection(theirs.index)
            change = float((ours[common] - theirs[common]).mean())
            if not len(ours) == len(theirs) == len(common):
                said = f"over {seed_words(common)}, which both have" if len(common) else "not shown: no seed in common"
                about_base = [*about_base, Note(group.title, group.setting, f"change against {base.title} {said}")]
        elif base is not None:
            about_base = [Note(group.title, group.setting, "no change is shown, for want of whole seeds")]
        changes.append((base_of(row.method), change, (*notes, *about_base)))
    return cells.assign(**{name: list(column) for name, column in _columns(changes)})


def _columns(changes: list[tuple[str | None, float, tuple[Note, ...]]]) -> list[tuple[str, tuple[Any, ...]]]:
    return list(zip(("base", "change", "notes"), zip(*changes, strict=True), strict=True))


def incomplete_notes(group: Group, incomplete: pd.DataFrame) -> list[Note]:
    """A note for every way in which seeds of ``group`` lack targets."""
    own = incomplete[(incomplete[GROUP] == list(group)).all(axis=1)]
    sentences = [
        f"{seed_words(same['seed'])} without {', '.join(missing)}, so not in the mean"
        for missing, same in own.groupby("missing", sort=False)
    ]
    return [Note(group.title, group.setting, sentence) for sentence in sentences]


def find_base(row: Any, cells: pd.DataFrame, configs: Mapping[str, Config]) -> tuple[Group | None, list[Note]]:
    """The group that ``row`` of ``cells`` is compared with, and what has to be said about it.

    Of several kinds of base runs the one with the same version, scale and shared settings is taken, if there is
    exactly one.
    """
    base = base_of(row.method)
    if base is None:
        return None, []
    group = Group(row.dataset, row.labels, row.method, row.kind)
    same = cells[(cells["dataset"] == row.dataset) & (cells["labels"] == row.labels) & (cells["method"] == base)]
    if same.empty:
        return None, [
            Note(group.title, group.setting, f"no runs of its base {method_title(base)}, so no change is shown")
        ]
    candidates = [(other, other_than_method(row, other, configs)) for other in same.itertuples()]
    if len(candidates) > 1:
        candidates = [(other, differ) for other, differ in candidates if not differ]
    if len(candidates) != 1:
        sentence = f"several kinds of {method_title(base)}, none chosen, so no change is shown"
        return None, [Note(group.title, group.setting, sentence)]
    other, differ = candidates[0]
    sentence = f"differs from its base in more than the method: {'; '.join(differ)}"
    notes = [Note(group.title, group.setting, sentence)] if differ else []
    return Group(other.dataset, other.labels, other.method, other.kind), notes


def other_than_method(one: Any, other: Any, configs: Mapping[str, Config]) -> list[str]:
    """In which settings, versions and scales two groups differ beside being two methods: ``"lr 0.1 against 0.2"``."""
    a, b = configs[one.config_hash], configs[other.config_hash]
    shared = [name for name in differing((a, b)) if name in a and name in b and name not in _OF_THE_METHOD]
    differ = [f"{name} {value_of(a, name)} against {value_of(b, name)}" for name in shared]
    for name in ("version", "scale"):
        if getattr(one, name) != getattr(other, name):
            differ.append(f"{name} {getattr(one, name)} against {getattr(other, name)}")
    return differ


def seed_words(seeds: Any) -> str:
    """``seed 3`` or ``seeds 1, 2, 4``."""
    numbers = sorted(int(seed) for seed in seeds)
    return f"{'seed' if len(numbers) == 1 else 'seeds'} {', '.join(map(str, numbers))}"
