"""Tables to Markdown, CSV and LaTeX."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

import pandas as pd

from semilearn_ext.report.layout import DASH, MINUS, Cell, Column, Panel, Table

WIDE = 6
"""Columns from which on a LaTeX table is shrunk to the width of the text."""


def markdown(table: Table) -> str:
    """A heading, the caption, a table a panel and the notes. Columns line up, so it can be read in a terminal too."""
    parts = [f"## {table.title} (`{table.name}`)", table.caption]
    for panel in table.panels:
        parts += [f"### {panel.title}", _grid(panel)] if _has_title(table, panel) else [_grid(panel)]
    if table.notes:
        parts.append("\n".join(f"- {note}" for note in table.notes))
    return "\n\n".join(parts) + "\n"


def _has_title(table: Table, panel: Panel) -> bool:
    """A single panel whose benchmarks are its columns needs none beside the table's own."""
    return len(table.panels) > 1 or bool(panel.dataset)


def _grid(panel: Panel) -> str:
    head = [_escaped(" ".join(filter(None, (column.block, column.title)))) for column in panel.columns]
    body = [[_marked(cell) for cell in row] for row in panel.rows]
    widths = [max(3, *(len(row[k]) for row in [head, *body])) for k in range(len(head))]
    lines = [" | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in [head, *body]]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" if line is not rule else f"|-{line}-|" for line in (lines[0], rule, *lines[1:]))


def _marked(cell: Cell) -> str:
    return f"**{_escaped(cell.text)}**" if cell.bold else _escaped(cell.text)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def markdown_page(tables: Sequence[Table], command: str, remarks: Sequence[str]) -> str:
    """All tables in one file, with the command that made it and what was left out."""
    parts = ["# Results", f"Made by `{command}`.", *(markdown(table).rstrip() for table in tables)]
    if remarks:
        parts += ["## Left out and unfinished", "\n".join(f"- {remark}" for remark in remarks)]
    return "\n\n".join(parts) + "\n"


def csv(data: pd.DataFrame, command: str) -> str:
    """The numbers behind a table, unrounded, below a line with the command."""
    return f"# made by: {command}\n" + data.to_csv(index=False, lineterminator="\n")


def latex(table: Table, command: str) -> str:
    """A ``table`` environment a panel. Needs the packages booktabs and graphicx."""
    parts = [f"% made by: {command}"]
    for k, panel in enumerate(table.panels):
        last = k == len(table.panels) - 1
        parts.append(_latex_panel(table, panel, "" if k == 0 else f"_{k + 1}", table.notes if last else ()))
    return "\n\n".join(parts) + "\n"


def _latex_panel(table: Table, panel: Panel, suffix: str, notes: Sequence[str]) -> str:
    title = f"{table.title}: {panel.title}." if _has_title(table, panel) else f"{table.title}."
    tabular = _tabular(panel)
    if len(panel.columns) >= WIDE:
        tabular = f"\\resizebox{{\\textwidth}}{{!}}{{%\n{tabular}%\n}}"
    lines = [
        r"\begin{table}[ht]",
        r"\centering",
        f"\\caption{{{tex(f'{title} {table.caption}')}}}",
        f"\\label{{table:{table.name}{suffix}}}",
        tabular,
        *(f"\\par\\smallskip\\footnotesize {tex(note)}" for note in notes),
        r"\end{table}",
    ]
    return "\n".join(lines)


def _tabular(panel: Panel) -> str:
    lines = [f"\\begin{{tabular}}{{l{'c' * (len(panel.columns) - 1)}}}", r"\toprule"]
    if any(column.block for column in panel.columns):
        lines += _blocks(panel.columns)
    lines += [_line([rf"\textbf{{{tex(column.title)}}}" for column in panel.columns]), r"\midrule"]
    for k, row in enumerate(panel.rows):
        lines += [r"\midrule"] if k in panel.rules else []
        lines.append(_line([rf"\textbf{{{tex(cell.text)}}}" if cell.bold else tex(cell.text) for cell in row]))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _blocks(columns: Sequence[Column]) -> list[str]:
    """The headings over several columns, and the lines below them."""
    cells, rules, place = [], [], 1
    for block, members in itertools.groupby(columns, key=lambda column: column.block):
        width = len(list(members))
        cells.append(rf"\multicolumn{{{width}}}{{c}}{{\textbf{{{tex(block)}}}}}" if block else "")
        rules += [rf"\cmidrule(lr){{{place}-{place + width - 1}}}"] if block else []
        place += width
    return [_line(cells), " ".join(rules)]


def _line(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def latex_document(names: Sequence[str], command: str) -> str:
    """A document that shows the files ``<name>.tex`` beside it."""
    inputs = "\n".join(rf"\input{{{name}}}\clearpage" for name in names)
    packages = "\\usepackage[margin=2cm,landscape]{geometry}\n\\usepackage{booktabs,graphicx}"
    head = f"% made by: {command}\n\\documentclass{{article}}\n{packages}"
    return f"{head}\n\\begin{{document}}\n{inputs}\n\\end{{document}}\n"


_TEX = {
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": "$|$",
    '"': "''",
    "<": "$<$",
    ">": "$>$",
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "…": r"\dots{}",
    DASH: "--",
    MINUS: "$-$",
}


def tex(text: str) -> str:
    """``text`` as LaTeX prints it in any font: letters lose their accents, other characters are question marks."""
    return "".join(_TEX.get(character, _ascii(character)) for character in text)


def _ascii(character: str) -> str:
    if character.isascii():
        return character
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
