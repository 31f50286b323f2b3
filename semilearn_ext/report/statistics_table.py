"""Methods against their bases, or against each other: the table of :mod:`semilearn_ext.report.statistics`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pandas as pd

from semilearn_ext.report.frames import Group, Note, find_base, note_lines, other_than_method, seed_words
from semilearn_ext.report.kinds import GROUP, Config
from semilearn_ext.report.layout import DASH, EMPTY, SEEDS, Cell, Column, Panel, Table, number, signed
from semilearn_ext.report.names import setting_title
from semilearn_ext.report.statistics import Comparison, compare, smallest_exact_p
from semilearn_ext.report.tables import PROTOCOL_WORDS, Results

_COLUMNS = ("Comparison", "difference", "95 % interval", "wins", "p, t test", "p, sign flips", "seeds")
Pair = tuple[Group, Group]


def against_bases(results: Results, configs: Mapping[str, Config]) -> Table | None:
    """Every method with a base against it; None when there is no such pair."""
    pairs: list[Pair] = []
    notes: list[Note] = []
    for row in results.cells.itertuples():
        base, said = find_base(row, results.cells, configs)
        notes += said
        if base is not None:
            pairs.append((Group(row.dataset, row.labels, row.method, row.kind), base))
    return _table("statistics", "Methods against their bases", results, pairs, notes)


def side_by_side(results: Results, methods: Sequence[str], configs: Mapping[str, Config]) -> Table | None:
    """Every two of ``methods``, the later one less the earlier; None when no benchmark has two of them."""
    chosen = results.cells[results.cells["method"].isin(methods)]
    pairs: list[Pair] = []
    notes: list[Note] = []
    for _, same in chosen.groupby(["dataset", "labels"], sort=False):
        ordered = sorted(same.itertuples(), key=lambda row: methods.index(row.method))
        for earlier, later in itertools.combinations(ordered, 2):
            ours, theirs = (Group(row.dataset, row.labels, row.method, row.kind) for row in (later, earlier))
            pairs.append((ours, theirs))
            if differ := other_than_method(later, earlier, configs):
                notes.append(_note(pairs[-1], f"they differ in more than the method: {'; '.join(differ)}"))
    return _table("compare_statistics", "Side by side, paired", results, pairs, notes)


def _table(name: str, title: str, results: Results, pairs: Sequence[Pair], notes: Sequence[Note]) -> Table | None:
    groups = {Group(*key): same for key, same in results.runs.groupby(GROUP)}
    made = [(pair, compare(groups[pair[0]], groups[pair[1]], results.targets[pair[0].dataset])) for pair in pairs]
    made = [(pair, found) for pair, found in made if found.pairs]
    if not made:
        return None
    settings = dict.fromkeys((pair[0].dataset, pair[0].labels) for pair, _ in made)
    panels = [
        Panel(
            setting_title(dataset, labels),
            [Column(column) for column in _COLUMNS],
            [_row(pair, found) for pair, found in made if pair[0][:2] == (dataset, labels)],
            labels=labels,
            dataset=dataset,
        )
        for dataset, labels in settings
    ]
    data = pd.DataFrame([_flat(pair, found) for pair, found in made]).assign(protocol=results.protocol)
    return Table(name, title, _caption(results.protocol, made), panels, data, note_lines([*notes, *_uncommon(made)]))


def _row(pair: Pair, found: Comparison) -> list[Cell]:
    title = _title(pair)
    whole = math.isfinite(found.low)
    return [
        Cell(title, title.lower()),
        Cell(signed(found.difference), found.difference) if found.seeds else EMPTY,
        Cell(f"{signed(found.low)} to {signed(found.high)}", found.low) if whole else EMPTY,
        Cell(f"{found.wins} of {found.pairs}{_ties(found.ties)}", found.wins / found.pairs),
        _p(found.t_test),
        _p(found.sign_flip),
        number(float(len(found.seeds)), 0),
    ]


def _ties(ties: int) -> str:
    return f", {ties} {'tie' if ties == 1 else 'ties'}" if ties else ""


def _p(value: float) -> Cell:
    if not math.isfinite(value):
        return Cell(DASH)
    return Cell("< 0.0001" if value < 0.0001 else f"{value:.4f}", value)


def _flat(pair: Pair, found: Comparison) -> dict[str, object]:
    (dataset, labels, method, kind), other = pair
    about = {"dataset": dataset, "labels_per_class": labels, "method": method, "kind": kind}
    about |= {"against": other.method, "against_kind": other.kind}
    return {**about, **found._asdict(), "seeds": " ".join(map(str, found.seeds)), "n": len(found.seeds)}


def _caption(protocol: str, made: Sequence[tuple[Pair, Comparison]]) -> str:
    counts = sorted({len(found.seeds) for _, found in made if len(found.seeds) > 1} | {SEEDS})
    least = "; ".join(f"{count} seeds: {smallest_exact_p(count):.4g}" for count in counts)
    return (
        f"Percentage points of accuracy on the domain left out, {PROTOCOL_WORDS[protocol]}, paired by target and seed. "
        "Difference: mean over seeds of the mean over targets. Interval: 95 % percentile bootstrap over seeds "
        "(scipy.stats.bootstrap, 9,999 resamples), too narrow with few seeds. Wins: pairs of target and seed where the "
        "first is better. t test: paired, two-sided, over seeds (scipy.stats.ttest_rel). Sign flips: the exact "
        "two-sided permutation test over seeds (scipy.stats.permutation_test); no exact test can give a smaller p than "
        f"2 / 2^n ({least}). No p is corrected for the number of comparisons."
    )


def _uncommon(made: Sequence[tuple[Pair, Comparison]]) -> list[Note]:
    """Say where only a part of the runs has a counterpart."""
    notes = []
    for pair, found in made:
        over = f"all but the wins is over {seed_words(found.seeds)}" if found.seeds else "too few for more than wins"
        alone = f"{found.left_out} {'run has' if found.left_out == 1 else 'runs have'} no counterpart"
        if found.left_out:
            notes.append(_note(pair, f"{alone}; {over}"))
        elif not found.seeds:
            notes.append(_note(pair, "no seed has all targets, so only wins are given"))
    return notes


def _note(pair: Pair, sentence: str) -> Note:
    return Note(_title(pair), pair[0].setting, sentence)


def _title(pair: Pair) -> str:
    return f"{pair[0].title} against {pair[1].title}"
