"""The style of all figures, and functions to save them as PNG and PDF, with their numbers as CSV.

Widths are those of a two-column paper, and text has at least 7 points at that width. The colours of Okabe and Ito, and
matplotlib's cividis for surfaces, can be distinguished with any kind of colour vision.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

from semilearn_ext import files
from semilearn_ext.report.writers import csv_text

ONE_COLUMN, TWO_COLUMNS = 3.25, 6.75
SMALL = 7
"""The smallest text, in points."""
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = COLOURS = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00"),
    *("#CC79A7", "#56B4E9", "#F0E442", "#000000"),
)
GREY = "#999999"
CLASS_COLOURS = (*COLOURS, GREY, "#882255")
MARKERS = ("o", "^", "s", "D", "v", "P", "X")
SURFACE = "cividis"

_LOOK: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "text.parse_math": False,  # a class or a domain may be called $x
    "pdf.fonttype": 42,
}


@contextmanager
def look() -> Iterator[None]:
    """Apply the style to all figures that are created, drawn and saved inside the ``with`` block.

    A file ``matplotlibrc``, which matplotlib reads from the current folder as well, has no effect.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_LOOK)
        yield


def colour_and_marker(number: int) -> tuple[str, str]:
    """A different pair for each of the first 70 numbers; consecutive pairs differ in both."""
    return CLASS_COLOURS[number % len(CLASS_COLOURS)], MARKERS[number % len(MARKERS)]


def save(figure: Figure, out: Path, name: str) -> list[Path]:
    """Write ``out/name.png`` and ``out/name.pdf``, with the same bytes for the same figure."""
    written = []
    for ending, metadata in (("png", {}), ("pdf", {"CreationDate": None})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=ending, dpi=300, metadata=metadata)
        written.append(out / f"{name}.{ending}")
        files.write_atomically(written[-1], partial(_copy, buffer))
    return written


def _copy(buffer: io.BytesIO, file: IO[bytes]) -> None:
    file.write(buffer.getbuffer())


def save_numbers(frame: pd.DataFrame, out: Path, name: str) -> Path:
    """Write ``out/name.csv``."""
    path = out / f"{name}.csv"
    files.write_text(path, csv_text(frame, "%.6g"))
    return path


def wrote(paths: list[Path]) -> list[str]:
    """One line per file, for the end of a command's output."""
    return [f"Wrote {path}" for path in paths]
