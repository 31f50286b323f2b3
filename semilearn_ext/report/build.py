"""Runs on disk to a report: every table that was asked for, and what has to be said beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.report import statistics_table, tables
from semilearn_ext.report.evaluations import read_evaluations
from semilearn_ext.report.frames import all_targets, results
from semilearn_ext.report.kinds import Config, read_configs, with_kinds
from semilearn_ext.report.layout import Table
from semilearn_ext.report.names import canonical
from semilearn_ext.report.records import find_runs
from semilearn_ext.report.tables import NAMED, Results

TABLES = ("summary", "by_target", "statistics", *NAMED, "observation")
"""Every table by name, in the order of a report."""


class Report(NamedTuple):
    results: Results
    configs: Mapping[str, Config]
    tables: list[Table]
    absent: list[str]
    """A line for each table that was asked for and has no runs."""
    unfinished: pd.DataFrame
    warnings: list[str]

    def remarks(self) -> list[str]:
        """All that has to be said beside the tables, a line each; warnings last."""
        count = len(self.unfinished)
        unfinished = [f"{count} {'run is' if count == 1 else 'runs are'} not finished and in no table"] if count else []
        return [*self.absent, *unfinished, *(f"warning: {warning}" for warning in self.warnings)]


def build(roots: Sequence[Path], names: Sequence[str], compared: Sequence[str], protocol: str) -> Report:
    """Read the runs below ``roots`` and make the tables ``names``, and one of the methods ``compared``."""
    found = find_runs(roots)
    if found.runs.empty:
        where = ", ".join(map(str, roots))
        raise UserError(
            "; ".join([f"{where}: no finished run ({len(found.unfinished)} unfinished)", *found.warnings[:3]])
        )
    configs, unread = read_configs(found.runs)
    runs, mixed = with_kinds(found.runs, configs)
    runs["accuracy"] = 100 * runs[protocol]
    targets = all_targets(runs, found.unfinished)
    evaluations, unmeasured = read_evaluations(runs)
    cells = results(runs, targets, configs, beside_the_paper=protocol == "last")
    made = Results(runs, cells, evaluations, targets, protocol)
    warnings = [*found.warnings, *unread, *mixed, *unmeasured]
    made_tables, absent = make_tables(made, configs, names, compared)
    return Report(made, configs, made_tables, absent, found.unfinished, warnings)


def make_tables(
    made: Results, configs: Mapping[str, Config], names: Sequence[str], compared: Sequence[str]
) -> tuple[list[Table], list[str]]:
    """The tables that have runs, those of ``compared`` first, and a line for each that has none."""
    makers: dict[str, Callable[[], Table | None]] = {
        "summary": lambda: tables.summary(made),
        "by_target": lambda: tables.by_target(made),
        "statistics": lambda: statistics_table.against_bases(made, configs),
        "observation": lambda: tables.observation(made),
    }
    done: list[Table | None] = []
    if compared:
        methods = check_methods(compared, made)
        done += [tables.compare(made, methods), statistics_table.side_by_side(made, methods, configs)]
    absent = []
    for name in names:
        table = makers[name]() if name in makers else tables.named_table(name, made)
        done.append(table)
        if table is None:
            absent.append(f"{name}: nothing it is about was run; left out")
    return [table for table in done if table is not None], absent


def check_methods(compared: Sequence[str], made: Results) -> list[str]:
    """The canonical names of ``compared``, each once; a method without runs is refused."""
    there = list(dict.fromkeys(made.cells["method"]))
    methods = list(dict.fromkeys(map(canonical, compared)))
    for method in methods:
        if method not in there:
            hint = did_you_mean(method, there) or f" (there are: {', '.join(there)})"
            raise UserError(f"--compare: no finished runs of {method!r}{hint}")
    return methods
