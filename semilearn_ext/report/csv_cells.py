"""Texts in CSV files that a spreadsheet would evaluate as formulas, such as names of domains, get an apostrophe."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"[\s']*[=+@-]")
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def to_cell(text: str) -> str:
    """``text`` after an apostrophe if it starts with ``=``, ``+``, ``-`` or ``@`` and is not a negative number."""
    return f"'{text}" if _is_formula(text) else text


def from_cell(text: str) -> str:
    """The text of a cell that :func:`to_cell` returned."""
    return text[1:] if text.startswith("'") and _is_formula(text[1:]) else text


def _is_formula(text: str) -> bool:
    return _FORMULA.match(text) is not None and _NUMBER.fullmatch(text) is None
