"""A table before it is Markdown, LaTeX or HTML: panels of cells, and the numbers behind them for CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pandas as pd

SEEDS = 5
"""How many seeds need no mention."""
DASH = "\u2013"
MINUS = "\u2212"


@dataclass(frozen=True)
class Cell:
    text: str
    sort: float | str | None = None
    """What a reader sorts by; None: always last."""
    bold: bool = False


EMPTY = Cell(DASH)


@dataclass(frozen=True)
class Column:
    title: str
    block: str = ""
    """A heading over neighbouring columns."""
    dataset: str = ""
    """The benchmark it is of, where a panel holds several."""


@dataclass(frozen=True)
class Panel:
    """One grid. The first column names the rows."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    labels: int | None = None
    dataset: str = ""
    rules: frozenset[int] = frozenset()
    """Rows that begin a new part."""


@dataclass(frozen=True)
class Table:
    name: str
    title: str
    caption: str
    panels: Sequence[Panel]
    data: pd.DataFrame
    notes: Sequence[str] = field(default_factory=tuple)


def signed(value: float, decimals: int = 1) -> str:
    """``+1.2``, ``−0.3``, ``+0.0``."""
    rounded = round(value, decimals) + 0.0
    return f"{MINUS if rounded < 0 else '+'}{abs(rounded):.{decimals}f}"


def number(value: float, decimals: int = 1) -> Cell:
    return Cell(f"{value:.{decimals}f}", value) if math.isfinite(value) else EMPTY


def spread(mean: float, std: float, n: int | None = None, change: float = math.nan, decimals: int = 1) -> Cell:
    """``79.6 ± 0.7 (+2.8) [n=3]``: the number of seeds only where it is not five (``n`` None: not ours to count)."""
    if not math.isfinite(mean):
        return Cell(f"{DASH} [n=0]") if n == 0 else EMPTY
    text = f"{mean:.{decimals}f}"
    text += f" ± {std:.{decimals}f}" if math.isfinite(std) else ""
    text += f" ({signed(change, decimals)})" if math.isfinite(change) else ""
    text += f" [n={n}]" if n not in (None, SEEDS) else ""
    return Cell(text, mean)


def with_best(rows: Sequence[Sequence[Cell]], column: int, decimals: int = 1) -> list[list[Cell]]:
    """``rows`` with the best of ``column`` in bold: all that are best as printed, if there is anything to beat."""
    values = [row[column].sort for row in rows]
    printed = [round(value, decimals) if isinstance(value, float) else None for value in values]
    there = [value for value in printed if value is not None]
    made = [list(row) for row in rows]
    for row, value in zip(made, printed, strict=True):
        if len(there) > 1 and value == max(there):
            row[column] = replace(row[column], bold=True)
    return made
