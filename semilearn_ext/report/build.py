"""Build a report from runs on disk: every requested table, and remarks on what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from semilearn_ext.errors import UserError, counted, did_you_mean
from semilearn_ext.report import statistics_table, tables
from semilearn_ext.report.aggregate import all_targets
from semilearn_ext.report.evaluations import read_evaluations
from semilearn_ext.report.gains import gains_table
from semilearn_ext.report.layout import Table
from semilearn_ext.report.methods import MethodId
from semilearn_ext.report.metrics import NOT_METRICS, Metric
from semilearn_ext.report.paper_tables import PAPER_TABLES
from semilearn_ext.report.records import read_records
from semilearn_ext.report.results import Results, make_results
from semilearn_ext.report.run_groups import read_configs, with_setups

TABLES = ("gains", "summary", "by_target", "statistics", *PAPER_TABLES, "observation")
"""All tables, in the order of a report."""


class Report(NamedTuple):
    results: Results
    tables: list[Table]
    absent: list[str]
    """One line per requested table that has no runs."""
    unfinished: pd.DataFrame
    warnings: list[str]

    def remarks(self) -> list[str]:
        """Everything that a reader should know in addition to the tables, one line each, with warnings last."""
        count = len(self.unfinished)
        runs = "1 run is" if count == 1 else f"{count} runs are"
        unfinished = [f"{runs} unfinished and not in any table"] if count else []
        return [*self.absent, *unfinished, *(f"warning: {warning}" for warning in self.warnings)]


def build(
    roots: Sequence[Path], names: Sequence[str], compared: Sequence[str], protocol: str, metric: Metric | None = None
) -> Report:
    """Read the runs below ``roots`` and build the tables ``names``, and one that compares the methods ``compared``."""
    metric = metric or Metric()
    if protocol != "last" and not metric.is_target_accuracy:
        raise UserError(f"--protocol: {metric.name} is recorded only at the last evaluation; remove --protocol")
    records = read_records(roots)
    if records.runs.empty:
        where = ", ".join(map(str, roots))
        unfinished = f"{where}: no finished runs ({len(records.unfinished)} unfinished)"
        raise UserError("; ".join([unfinished, *records.warnings[:3]]))
    configs, unread = read_configs(records.runs)
    runs, different = with_setups(records.runs, configs)
    runs, unmeasured = with_values(runs, metric, protocol)
    evaluations, damaged = read_evaluations(runs)
    targets = all_targets(records.runs, records.unfinished)
    results = make_results(runs, evaluations, targets, configs, protocol, metric)
    built, absent = make_tables(results, names, compared)
    warnings = [*records.warnings, *unread, *different, *unmeasured, *damaged]
    return Report(results, built, absent, records.unfinished, warnings)


def with_values(runs: pd.DataFrame, metric: Metric, protocol: str) -> tuple[pd.DataFrame, list[str]]:
    """The runs that recorded ``metric``, with its value as the column ``value``, and a warning about the others."""
    if metric.is_target_accuracy:
        return _with_protocol(runs.assign(value=metric.factor * runs[protocol]), protocol)
    values = pd.Series([metrics.get(metric.name) for metrics in runs["metrics"]], index=runs.index, dtype=float)
    if values.isna().all():
        recorded = sorted({name for metrics in runs["metrics"] for name in metrics} - set(NOT_METRICS))
        raise UserError(f"--metric: no run recorded {metric.name!r} (recorded: {', '.join(recorded)})")
    missing = int(values.isna().sum())
    warnings = [f"{counted(missing, 'run')} did not record {metric.name}; left out"]
    measured = runs.assign(value=metric.factor * values)[values.notna()].reset_index(drop=True)
    return measured, warnings if missing else []


def _with_protocol(runs: pd.DataFrame, protocol: str) -> tuple[pd.DataFrame, list[str]]:
    """The runs that have a ``value``; runs without averaged weights may not."""
    missing = runs["value"].isna()
    if missing.all():
        raise UserError(f"--protocol: no run has averaged weights of kind {protocol}; train with --average {protocol}")
    by_method = runs.loc[missing, "method"].map(lambda method: method.name).value_counts(sort=False)
    warnings = [
        f"{counted(count, 'run')} of {name} without averaged weights of kind {protocol}; left out"
        for name, count in by_method.items()
    ]
    return runs[~missing].reset_index(drop=True), warnings


def make_tables(results: Results, names: Sequence[str], compared: Sequence[str]) -> tuple[list[Table], list[str]]:
    """The tables that have runs, starting with those of ``compared``, and one line for each table without runs."""
    makers: Mapping[str, Callable[[Results], Table | None]] = {
        "gains": gains_table,
        "summary": tables.summary,
        "by_target": tables.by_target,
        "statistics": statistics_table.against_baselines,
        "observation": tables.observation,
    }
    built: list[Table | None] = []
    if compared:
        methods = find_methods(compared, results.cells["method"], "--compare")
        built += [tables.compare(results, methods), statistics_table.side_by_side(results, methods)]
    absent = []
    for name in names:
        table = makers[name](results) if name in makers else tables.paper_table(name, results)
        built.append(table)
        if table is None:
            absent.append(f"{name}: no runs for this table; left out")
    return [table for table in built if table is not None], absent


def find_methods(names: Sequence[str], methods: Iterable[MethodId], option: str) -> list[MethodId]:
    """Those of ``methods`` that have these names, without duplicates. A name without runs is an error."""
    known = {method.name: method for method in methods}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or f" (methods with runs: {', '.join(known)})"
            raise UserError(f"{option}: no finished runs of {name!r}{hint}")
    return list(dict.fromkeys(known[name] for name in names))
