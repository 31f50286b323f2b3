"""Small tables inside Markdown files, generated from records, so that no number in a README is copied by hand.

A table is placed between two comments, the first of which says what it shows::

    <!-- glance: results/digits_mini/records fixmatch,fixmatch_upcsc -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.registry import PLUGINS
from semilearn_ext.report.build import build, find_methods
from semilearn_ext.report.gains import gains
from semilearn_ext.report.layout import EMPTY, Cell, Column, Panel, gain_text, number, spread, wins_text
from semilearn_ext.report.methods import MethodId
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.released import parity_panel, released_table
from semilearn_ext.report.results import Results
from semilearn_ext.report.writers import markdown_panel, plain_markdown

_MARKED = re.compile(r"(<!-- (\w+): (\S+) (\S+) -->)\n.*?(<!-- end of table -->)", re.DOTALL)
_PROTOCOLS = {"last": "last", "ema": "EMA", "swa": "SWA"}


def update(text: str, where: str) -> str:
    """``text`` with every marked table regenerated from the records that its marker names."""
    if not _MARKED.search(text):
        raise UserError(f"{where}: contains no table to update; mark one with '<!-- KIND: RECORDS NAMES -->'")
    return _MARKED.sub(partial(_replace, where=where), text)


def _replace(match: re.Match[str], where: str) -> str:
    start, kind, folder, names, end = match.groups()
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise UserError(f"{where}: unknown table {kind!r}{did_you_mean(kind, _KINDS)} (known: {known})")
    return f"{start}\n{_KINDS[kind](Path(folder), names.split(','))}\n{end}"


def glance(folder: Path, names: Sequence[str]) -> str:
    """Mean and standard deviation of each method, and its gain over its base with interval and wins."""
    results = _results(folder, "last")
    over_base = {
        row.method: row
        for plugin in {cell.method.plugins[0] for cell in results.cells.itertuples() if len(cell.method.plugins) == 1}
        for row in gains(results, plugin)[0].itertuples()
    }
    rows = []
    for method in find_methods(names, results.cells["method"], "glance"):
        rows.append([Cell(method.title), _accuracy(results, method), *_gain_cells(over_base.get(method.name))])
    return _table(["Method", "accuracy", "gain over the base, 95 % interval", "pairs won"], rows)


def by_base(folder: Path, names: Sequence[str]) -> str:
    """Every method without plug-ins: its accuracy, the gain of a plug-in, and metrics of the runs with the plug-in.

    The first name is the plug-in, the others are metrics. Methods that do not support the plug-in are last.
    """
    plugin, *metrics = names
    results = _results(folder, "last")
    table, _ = gains(results, plugin)
    of_base = {row.base: row for row in table.itertuples() if row.method == f"{row.base}_{plugin}"}
    bases = [method for method in results.cells["method"] if method.baseline is None]
    bases.sort(key=lambda base: -of_base[base.name].gain if base.name in of_base else float("inf"))
    runs = results.runs.assign(name=results.runs["method"].map(lambda method: method.name)).groupby("name")
    rows = []
    for base in bases:
        gain = of_base.get(base.name)
        measured = [_mean_of(runs.get_group(gain.method), metric) if gain else EMPTY for metric in metrics]
        rows.append([Cell(base.title), _accuracy(results, base), *_gain_cells(gain), *measured])
    title = PLUGINS.get(plugin, "plug-in").title
    about = [Metric(name) for name in metrics]
    columns = [f"{metric.quantity} (%)" if metric.is_share else metric.quantity for metric in about]
    return _table(["Base", "accuracy", f"gain of {title}, 95 % interval", "pairs won", *columns], rows)


def _gain_cells(gain: Any) -> list[Cell]:
    """The gain with its interval, and the wins; ``gain`` is a row of :func:`gains` or None."""
    if gain is None:
        return [EMPTY, EMPTY]
    return [Cell(gain_text(gain.gain, gain.low, gain.high)), Cell(wins_text(gain.wins, gain.pairs, gain.ties))]


def _mean_of(runs: Any, metric: str) -> Cell:
    """The mean over targets and seeds of a metric at the last evaluation."""
    about = Metric(metric)
    values = runs["metrics"].map(lambda metrics: metrics.get(metric, float("nan"))).astype(float)
    return number(about.factor * values.groupby(runs["target"]).mean().mean(), min(about.decimals, 1))


def protocols(folder: Path, names: Sequence[str]) -> str:
    """Accuracy of the last weights, of their exponential moving average and of their uniform average."""
    # Runs without averaged weights are not worth a warning: they may not be in the table, which shows n otherwise.
    by_protocol = [_results(folder, "last"), *(build([folder], (), (), name).results for name in ("ema", "swa"))]
    rows = [
        [Cell(method.title), *(_accuracy(results, method) for results in by_protocol)]
        for method in find_methods(names, by_protocol[0].cells["method"], "protocols")
    ]
    return _table(["Method", *_PROTOCOLS.values()], rows)


def released(folder: Path, names: Sequence[str]) -> str:
    """The released code's accuracy by target next to ours; the only name is the file with its numbers."""
    table = released_table(_results(folder, "last"), Path(*names))
    return "\n".join([markdown_panel(table.panels[0]), "", *(f"- {plain_markdown(note)}" for note in table.notes)])


def parity(folder: Path, names: Sequence[str]) -> str:
    """The same with one line per target, and with the gain of UPCSC."""
    return markdown_panel(parity_panel(_results(folder, "last"), Path(*names)))


_KINDS: dict[str, Callable[[Path, Sequence[str]], str]] = {
    "glance": glance,
    "gains": by_base,
    "protocols": protocols,
    "released": released,
    "parity": parity,
}


def _results(folder: Path, protocol: str) -> Results:
    report = build([folder], (), (), protocol)
    for warning in report.warnings:
        warnings.warn(warning, stacklevel=2)
    return report.results


def _accuracy(results: Results, method: MethodId) -> Cell:
    cells = results.cells[results.cells["method"] == method]
    if len(cells) != 1:
        raise UserError(
            f"{method.name}: the records contain {len(cells)} experiments with this method, but the table can show "
            f"only one; choose another method"
        )
    cell = cells.iloc[0]
    return spread(cell["mean"], cell["std"], int(cell["n"]))


def _table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    return markdown_panel(Panel("", [Column(name) for name in columns], rows))
