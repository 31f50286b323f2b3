"""The layout of a table, independent of Markdown, LaTeX and HTML: panels of cells, and the numbers for CSV."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import pandas as pd

from semilearn_ext.errors import counted

SEEDS = 5
"""The usual number of seeds, which is not printed."""
DASH = "\u2013"
MINUS = "\u2212"


@dataclass(frozen=True)
class Cell:
    """``79.6 ± 0.7 (+2.8) [n=3]``: a value, its change from a baseline, and an unusual number of seeds."""

    value: str
    sort: float | str | None = None
    """The value to sort by; None is always last."""
    change: str = ""
    seeds: int | None = None
    bold: bool = False

    @property
    def text(self) -> str:
        change = f" ({self.change})" if self.change else ""
        return f"{self.value}{change}" + (f" [n={self.seeds}]" if self.seeds is not None else "")


EMPTY = Cell(DASH)


@dataclass(frozen=True)
class Column:
    title: str
    block: str = ""
    """A heading above neighbouring columns."""
    dataset: str = ""
    """The benchmark of the column, if a panel shows several."""


class Block(NamedTuple):
    """Neighbouring columns with one heading, which is empty for columns without a block."""

    title: str
    dataset: str
    width: int


@dataclass(frozen=True)
class Panel:
    """One grid of cells. The first column contains the names of the rows."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    labels: int | None = None
    dataset: str = ""
    rules: frozenset[int] = frozenset()
    """Rows with a line above them."""

    @property
    def datasets(self) -> list[str]:
        """The benchmarks that the panel is about."""
        return [self.dataset] if self.dataset else list(dict.fromkeys(c.dataset for c in self.columns if c.dataset))

    @property
    def blocks(self) -> list[Block]:
        """The headings above the columns; empty if there are none."""
        groups = itertools.groupby(self.columns, key=lambda column: (column.block, column.dataset))
        blocks = [Block(title, dataset, len(list(columns))) for (title, dataset), columns in groups]
        return blocks if any(block.title for block in blocks) else []


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    data: pd.DataFrame
    """The content of the CSV file."""
    notes: Sequence[str] = ()


def signed(value: float, decimals: int = 1) -> str:
    """``+1.2``, ``−0.3``, ``+0.0``."""
    rounded = round(value, decimals) + 0.0
    return f"{MINUS if rounded < 0 else '+'}{abs(rounded):.{decimals}f}"


def gain_text(gain: float, low: float, high: float) -> str:
    """``+0.8 (+0.5 to +1.2)``; without an interval if it is NaN."""
    return signed(gain) + (f" ({signed(low)} to {signed(high)})" if math.isfinite(low) else "")


def wins_text(wins: int, pairs: int, ties: int) -> str:
    """``15 of 20``, ``15 of 20, 1 tie``."""
    return f"{wins} of {pairs}" + (f", {counted(ties, 'tie')}" if ties else "")


def number(value: float, decimals: int = 1) -> Cell:
    return Cell(f"{value:.{decimals}f}", value) if math.isfinite(value) else EMPTY


def spread(mean: float, std: float, n: int | None = None, change: float = math.nan, decimals: int = 1) -> Cell:
    """Mean, standard deviation, change and, unless it is the usual number, the number of seeds (None if unknown)."""
    if not math.isfinite(mean):
        return Cell(DASH, seeds=0) if n == 0 else EMPTY
    return Cell(
        value=f"{mean:.{decimals}f}" + (f" ± {std:.{decimals}f}" if math.isfinite(std) else ""),
        sort=mean,
        change=signed(change, decimals) if math.isfinite(change) else "",
        seeds=None if n == SEEDS else n,
    )


def with_best(panel: Panel, columns: Iterable[int], decimals: int = 1) -> Panel:
    """``panel`` with the largest value of each column in bold, and all values that are equal to it as printed."""
    rows = [list(row) for row in panel.rows]
    for column in columns:
        values = [row[column].sort for row in rows]
        printed = [round(value, decimals) if isinstance(value, float) else None for value in values]
        numbers = [value for value in printed if value is not None]
        for row, value in zip(rows, printed, strict=True):
            if len(numbers) > 1 and value == max(numbers):
                row[column] = replace(row[column], bold=True)
    return replace(panel, rows=rows)
