"""Tables that compare methods with their baselines or with each other (:mod:`semilearn_ext.report.statistics`)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pandas as pd

from semilearn_ext.report.baselines import Note, differences, find_baseline, note_lines, seeds_text
from semilearn_ext.report.layout import DASH, EMPTY, SEEDS, Cell, Column, Panel, Table, number, signed, wins_text
from semilearn_ext.report.methods import MethodId
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import Comparison, compare, smallest_exact_p
from semilearn_ext.report.tables import flat

_COLUMNS = ("Comparison", "difference", "95 % interval", "wins", "p (t test)", "p (sign flips)", "seeds")
Pair = tuple[Group, Group]


def against_baselines(results: Results) -> Table | None:
    """Compare every method with its baseline; None if there is no such pair."""
    pairs: list[Pair] = []
    notes: list[Note] = []
    for row in results.cells.itertuples():
        baseline, about_baseline = find_baseline(row, results.cells, results.configs)
        notes += about_baseline
        if baseline is not None:
            pairs.append((Group.of(row), baseline))
    return _table("statistics", "Methods against their base algorithms", results, pairs, notes)


def side_by_side(results: Results, methods: Sequence[MethodId]) -> Table | None:
    """Compare all pairs of ``methods``, the later minus the earlier one; None if no benchmark has two of them."""
    chosen = results.cells[results.cells["method"].isin(methods)]
    pairs: list[Pair] = []
    notes: list[Note] = []
    for _, cells in chosen.groupby(["dataset", "labels"], sort=False):
        ordered = sorted(cells.itertuples(), key=lambda row: methods.index(row.method))
        for earlier, later in itertools.combinations(ordered, 2):
            pairs.append((Group.of(later), Group.of(earlier)))
            if differ := differences(later, earlier, results.configs):
                notes.append(_note(pairs[-1], f"they differ in more than the method: {'; '.join(differ)}"))
    return _table("compare_statistics", "Comparison, paired", results, pairs, notes)


def _table(name: str, title: str, results: Results, pairs: Sequence[Pair], notes: Sequence[Note]) -> Table | None:
    runs = {Group(*key): group_runs for key, group_runs in results.runs.groupby(GROUP)}
    compared = [(pair, compare(runs[pair[0]], runs[pair[1]], results.targets[pair[0].dataset])) for pair in pairs]
    compared = [(pair, comparison) for pair, comparison in compared if comparison.pairs]
    if not compared:
        return None
    settings = dict.fromkeys((pair[0].dataset, pair[0].labels, pair[0].setting) for pair, _ in compared)
    panels = [
        Panel(
            setting,
            [Column(column) for column in _COLUMNS],
            [_row(pair, comparison, results) for pair, comparison in compared if pair[0][:2] == (dataset, labels)],
            labels=labels,
            dataset=dataset,
        )
        for dataset, labels, setting in settings
    ]
    data = flat(pd.DataFrame([_csv_row(pair, comparison) for pair, comparison in compared]), results)
    notes = [*notes, *_counterpart_notes(compared)]
    return Table(name, results.titled(title), _caption(results, compared), panels, data, note_lines(notes))


def _row(pair: Pair, comparison: Comparison, results: Results) -> list[Cell]:
    title, decimals = _title(pair), results.metric.decimals
    low, high = signed(comparison.low, decimals), signed(comparison.high, decimals)
    wins = wins_text(comparison.wins, comparison.pairs, comparison.ties)
    return [
        Cell(title, title.lower()),
        Cell(signed(comparison.difference, decimals), comparison.difference) if comparison.seeds else EMPTY,
        Cell(f"{low} to {high}", comparison.low) if math.isfinite(comparison.low) else EMPTY,
        Cell(wins, comparison.wins / comparison.pairs),
        _p_value(comparison.t_test),
        _p_value(comparison.sign_flip),
        number(float(len(comparison.seeds)), 0),
    ]


def _p_value(value: float) -> Cell:
    if not math.isfinite(value):
        return Cell(DASH)
    return Cell("< 0.0001" if value < 0.0001 else f"{value:.4f}", value)


def _csv_row(pair: Pair, comparison: Comparison) -> dict[str, object]:
    group, other = pair
    about = {**group._asdict(), "against": other.method.name, "against_setup": other.setup}
    seeds = {"seeds": " ".join(map(str, comparison.seeds)), "n": len(comparison.seeds)}
    return {**about, **comparison._asdict(), **seeds}


def _caption(results: Results, compared: Sequence[tuple[Pair, Comparison]]) -> str:
    counts = sorted({len(comparison.seeds) for _, comparison in compared if len(comparison.seeds) > 1} | {SEEDS})
    smallest = "; ".join(f"{count} seeds: {smallest_exact_p(count):.4g}" for count in counts)
    unit = " Differences are in percentage points." if results.metric.is_share else ""
    win = "better" if results.metric.is_accuracy else "larger"
    return (
        f"{results.what()}, paired by target and seed.{unit} Difference: the mean over seeds of the mean over targets. "
        "Interval: 95 % percentile bootstrap over seeds (scipy.stats.bootstrap, 9,999 resamples), which is too narrow "
        f"with few seeds. Wins: pairs of target and seed in which the first method is {win}. t test: paired and "
        "two-sided, over seeds (scipy.stats.ttest_rel). Sign flips: the exact two-sided permutation test over seeds "
        "(scipy.stats.permutation_test); the p value of an exact test cannot be smaller than 2 / 2^n "
        f"({smallest}). The p values are not corrected for the number of comparisons."
    )


def _counterpart_notes(compared: Sequence[tuple[Pair, Comparison]]) -> list[Note]:
    """Notes on pairs in which only some of the runs have a counterpart."""
    notes = []
    for pair, comparison in compared:
        if comparison.left_out:
            runs = f"{comparison.left_out} {'run has' if comparison.left_out == 1 else 'runs have'} no counterpart"
            seeds = seeds_text(comparison.seeds) if comparison.seeds else ""
            rest = f"all but the wins are over {seeds}" if seeds else "only the wins are given"
            notes.append(_note(pair, f"{runs}; {rest}"))
        elif not comparison.seeds:
            notes.append(_note(pair, "no seed has all targets, so only the wins are given"))
    return notes


def _note(pair: Pair, sentence: str) -> Note:
    return Note(_title(pair), pair[0].setting, sentence)


def _title(pair: Pair) -> str:
    return f"{pair[0].title} against {pair[1].title}"
