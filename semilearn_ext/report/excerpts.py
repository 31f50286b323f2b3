"""Small tables inside Markdown files, generated from records, so that no number in a README is copied by hand.

A table is placed between two comments, the first of which says what it shows::

    <!-- glance: results/digits_mini/records fixmatch,fixmatch_upcsc -->
    <!-- end of table -->
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.report.build import build, find_methods
from semilearn_ext.report.gains import gains
from semilearn_ext.report.layout import DASH, Cell, Column, Panel, signed, spread
from semilearn_ext.report.methods import MethodId
from semilearn_ext.report.released import released_table
from semilearn_ext.report.results import Results
from semilearn_ext.report.writers import markdown_panel

_MARKED = re.compile(r"(<!-- (\w+): (\S+) (\S+) -->)\n.*?(<!-- end of table -->)", re.DOTALL)
_PROTOCOLS = {"last": "last", "ema": "EMA", "swa": "SWA"}


def update(text: str, where: str) -> str:
    """``text`` with every marked table regenerated from the records that its marker names."""
    return _MARKED.sub(partial(_replace, where=where), text)


def _replace(match: re.Match[str], where: str) -> str:
    start, kind, folder, names, end = match.groups()
    if kind not in _KINDS:
        known = ", ".join(_KINDS)
        raise UserError(f"{where}: unknown table {kind!r}{did_you_mean(kind, _KINDS)} (known: {known})")
    return f"{start}\n{markdown_panel(_KINDS[kind](Path(folder), names.split(',')))}\n{end}"


def glance(folder: Path, names: Sequence[str]) -> Panel:
    """Mean and standard deviation of each method, and its gain over its base with interval and wins."""
    results = _results(folder, "last")
    over_base = {
        row.method: row
        for plugin in {cell.method.plugins[0] for cell in results.cells.itertuples() if len(cell.method.plugins) == 1}
        for row in gains(results, plugin)[0].itertuples()
    }
    rows = []
    for method in find_methods(names, results.cells["method"], "glance"):
        gain = over_base.get(method.name)
        cells = [Cell(DASH), Cell(DASH)]
        if gain is not None:
            interval = f" ({signed(gain.low)} to {signed(gain.high)})" if gain.low == gain.low else ""
            cells = [Cell(f"{signed(gain.gain)}{interval}"), Cell(f"{gain.wins} of {gain.pairs} pairs")]
        rows.append([Cell(method.title), _accuracy(results, method), *cells])
    return _panel(["Method", "accuracy", "gain over the base, 95 % interval", "better in"], rows)


def protocols(folder: Path, names: Sequence[str]) -> Panel:
    """Accuracy of the last weights, of their exponential moving average and of their uniform average."""
    by_protocol = [_results(folder, protocol) for protocol in _PROTOCOLS]
    rows = [
        [Cell(method.title), *(_accuracy(results, method) for results in by_protocol)]
        for method in find_methods(names, by_protocol[0].cells["method"], "protocols")
    ]
    return _panel(["Method", *_PROTOCOLS.values()], rows)


def released(folder: Path, names: Sequence[str]) -> Panel:
    """The released code's accuracy by target next to ours; the only name is the file with its numbers."""
    return released_table(_results(folder, "last"), Path(*names)).panels[0]


_KINDS: dict[str, Callable[[Path, Sequence[str]], Panel]] = {
    "glance": glance,
    "protocols": protocols,
    "released": released,
}


def _results(folder: Path, protocol: str) -> Results:
    return build([folder], (), (), protocol).results


def _accuracy(results: Results, method: MethodId) -> Cell:
    cells = results.cells[results.cells["method"] == method]
    if len(cells) != 1:
        raise UserError(
            f"{method.name}: the records contain {len(cells)} experiments with this method, but the table can show "
            f"only one; choose another method"
        )
    cell = cells.iloc[0]
    return spread(cell["mean"], cell["std"], int(cell["n"]))


def _panel(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Panel:
    return Panel("", [Column(name) for name in columns], rows)
