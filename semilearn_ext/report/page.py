"""The report as one HTML file: tables that sort, curves and bars, statistics, settings. No network, no other file."""

from __future__ import annotations

import html
import itertools
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

import yaml

from semilearn_ext.report.build import Report
from semilearn_ext.report.evaluations import ACCURACIES, curves
from semilearn_ext.report.frames import Group, over_targets, sort_key
from semilearn_ext.report.kinds import GROUP, differing
from semilearn_ext.report.layout import Cell, Column, Panel, Table
from semilearn_ext.report.names import dataset_title, method_title, setting_title
from semilearn_ext.report.provenance import environments
from semilearn_ext.report.tables import PROTOCOL_WORDS, Results

_FILES = Path(__file__).parent / "page_files"
Section = tuple[str, str, str]
"""An anchor, a title for the table of contents, and HTML."""


def page(report: Report, command: str) -> str:
    """The whole file."""
    first, *others = [_table_section(table) for table in report.tables]
    sections = [
        first,
        *_chart_sections(report.results),
        *others,
        *_remark_section(report),
        _settings_section(report),
        _provenance_section(report, command),
    ]
    template = Template((_FILES / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        style=(_FILES / "page.css").read_text(encoding="utf-8"),
        script=(_FILES / "page.js").read_text(encoding="utf-8"),
        facts=_facts(report),
        filters=_filters(report.results),
        contents="".join(f'<li><a href="#{anchor}">{_text(title)}</a></li>' for anchor, title, _ in sections),
        sections="\n".join(body for _, _, body in sections),
        data=json.dumps(_chart_data(report.results), separators=(",", ":")).replace("<", "\\u003c"),
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _attributes(**values: object) -> str:
    """Data attributes; empty ones are left out."""
    return "".join(f' data-{name}="{_text(value)}"' for name, value in values.items() if value not in ("", None))


def _facts(report: Report) -> str:
    runs = report.results.runs
    seeds = sorted(set(runs["seed"]))
    counts = [
        (len(runs), "finished run"),
        (runs["method"].nunique(), "method"),
        (runs["dataset"].nunique(), "benchmark"),
        (len(seeds), "seed"),
    ]
    words = [f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in counts]
    words += [f"{len(report.unfinished):,} unfinished"] if len(report.unfinished) else []
    protocol = f"Accuracy {PROTOCOL_WORDS[report.results.protocol]}."
    return f"<p>{_text(' · '.join(words))}</p><p>{_text(protocol)}</p>"


def _filters(results: Results) -> str:
    """A choice of benchmark and label count, where there is one, and a search for methods."""
    datasets = [(dataset, dataset_title(dataset)) for dataset in dict.fromkeys(results.cells["dataset"])]
    labels = [(count, f"{count} labels a class") for count in sorted(set(results.cells["labels"]), reverse=True)]
    parts = []
    for name, title, every, options in (
        ("dataset", "Benchmark", "All benchmarks", datasets),
        ("labels", "Label count", "All label counts", labels),
    ):
        if len(options) > 1:
            choices = "".join(f'<option value="{_text(value)}">{_text(words)}</option>' for value, words in options)
            parts.append(
                f'<select data-filter="{name}" aria-label="{title}"><option value="">{every}</option>{choices}</select>'
            )
    parts.append('<input type="search" data-filter="method" placeholder="Find a method" aria-label="Find a method">')
    return "".join(parts)


def _table_section(table: Table) -> Section:
    panels = "".join(_panel(table, panel) for panel in table.panels)
    body = (
        f'<section id="{table.name}"><h2>{_text(table.title)}</h2><div class="panels">{panels}</div>'
        f'<p class="caption">{_text(table.caption)}</p>{_list(table.notes, "notes")}</section>'
    )
    return table.name, table.title, body


def _list(lines: Iterable[str], kind: str) -> str:
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return f'<ul class="{kind}">{items}</ul>' if items else ""


def _panel(table: Table, panel: Panel) -> str:
    datasets = [panel.dataset] if panel.dataset else dict.fromkeys(c.dataset for c in panel.columns if c.dataset)
    head = _block_row(panel.columns) if any(column.block for column in panel.columns) else ""
    head += "".join(
        f'<th scope="col" aria-sort="none"{_attributes(dataset=column.dataset)}>'
        f'<button type="button">{_text(column.title or "Rate")}</button></th>'
        for column in panel.columns
    ).join(("<tr>", "</tr>"))
    rows = "".join(_row(row, panel.columns, rule=k in panel.rules) for k, row in enumerate(panel.rows))
    caption = f"<caption>{_text(panel.title)}</caption>"
    return (
        f'<div class="panel"{_attributes(datasets=json.dumps(list(datasets)), labels=panel.labels)}>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_text(table.title)}, {_text(panel.title)}">'
        f"<table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table></div></div>"
    )


def _block_row(columns: Sequence[Column]) -> str:
    cells = ""
    for (block, dataset), members in itertools.groupby(columns, key=lambda column: (column.block, column.dataset)):
        width = len(list(members))
        tag = f'<th scope="colgroup" colspan="{width}" class="block"' if block else f'<td colspan="{width}"'
        cells += f"{tag}{_attributes(dataset=dataset)}>{_text(block)}</{'th' if block else 'td'}>"
    return f"<tr>{cells}</tr>"


def _row(row: Sequence[Cell], columns: Sequence[Column], rule: bool) -> str:
    name = row[0]
    cells = f'<th scope="row"{_attributes(sort=name.sort)}>{_text(name.text)}</th>'
    for cell, column in zip(row[1:], columns[1:], strict=True):
        text = _quiet(_text(cell.text))
        text = f"<strong>{text}</strong>" if cell.bold else text
        cells += f"<td{_attributes(sort=cell.sort, dataset=column.dataset)}>{text}</td>"
    return f'<tr class="rule">{cells}</tr>' if rule else f"<tr>{cells}</tr>"


def _quiet(text: str) -> str:
    """Changes in brackets and numbers of seeds, set apart."""
    text = re.sub(r" (\([^)]*\))", r' <span class="change">\1</span>', text)
    return re.sub(r" \[(n=\d+)\]", r' <span class="few">\1</span>', text)


def _chart_sections(results: Results) -> list[Section]:
    settings = dict.fromkeys(results.cells[["dataset", "labels"]].itertuples(index=False, name=None))
    sections = []
    for kind, title, caption in (
        ("curves", "Accuracy over epochs", _CURVES),
        ("bars", "Bars by target domain", _BARS.format(protocol=PROTOCOL_WORDS[results.protocol])),
    ):
        figures = "".join(
            f'<figure class="panel chart"{_attributes(chart=kind, datasets=json.dumps([dataset]), labels=labels)}'
            f'{_attributes(dataset=dataset)} aria-label="{title}, {_text(setting_title(dataset, labels))}">'
            f"<figcaption>{_text(setting_title(dataset, labels))}</figcaption></figure>"
            for dataset, labels in settings
        )
        choice = _metric_choice() if kind == "curves" else ""
        body = (
            f'<section id="{kind}"><h2>{title}</h2>{choice}<div class="charts">{figures}</div>'
            f'<p class="caption">{_text(caption)}</p></section>'
        )
        sections.append((kind, title, body))
    return sections


_CURVES = (
    "For each seed the mean over targets; line: mean over seeds; band: one standard deviation (ddof 1) to each side. "
    "Seeds that lack a target are left out."
)
_BARS = "Accuracy in percent {protocol}. Bars: mean over seeds; lines: one standard deviation (ddof 1) to each side."


def _metric_choice() -> str:
    options = "".join(f'<option value="{name}">{_text(title)}</option>' for name, title in ACCURACIES.items())
    return f'<p><label>Accuracy on <select id="metric">{options}</select></label></p>'


def _chart_data(results: Results) -> dict[str, Any]:
    """What the script draws. Methods keep their colour through the page: it goes by their place in ``names``."""
    ordered = results.cells[GROUP].sort_values(["method", "kind"], key=sort_key, kind="stable")
    names = list(dict.fromkeys(Group(*row).title for row in ordered.itertuples(index=False, name=None)))
    drawn = [
        {
            "dataset": curve.group.dataset,
            "labels": int(curve.group.labels),
            "name": curve.group.title,
            "seeds": curve.seeds,
            "epochs": curve.epochs,
            "mean": curve.mean,
            "std": curve.std,
        }
        for curve in sorted(curves(results.evaluations, results.targets), key=lambda one: names.index(one.group.title))
    ]
    return {"names": names, "curves": drawn, "bars": _bars(results)}


def _bars(results: Results) -> list[dict[str, Any]]:
    bars: list[dict[str, Any]] = []
    one = {(Group(*row[:4]), row[4]): row[5:] for row in over_targets(results.runs).itertuples(index=False, name=None)}
    for row in results.cells.itertuples():
        group = Group(row.dataset, row.labels, row.method, row.kind)
        targets = list(results.targets[row.dataset])
        values = [one.get((group, target), (None, None, 0)) for target in targets] + [(row.mean, row.std, row.n)]
        mean, std, n = zip(*[(_finite(mean), _finite(std), int(n)) for mean, std, n in values], strict=True)
        about = {"dataset": row.dataset, "labels": int(row.labels), "name": group.title, "targets": [*targets, "mean"]}
        bars.append({**about, "mean": mean, "std": std, "n": n})
    return bars


def _finite(value: float | None) -> float | None:
    return None if value is None or value != value else round(value, 3)


def _remark_section(report: Report) -> list[Section]:
    """What was left out, and what is not finished."""
    parts = _list(report.warnings, "warnings")
    parts += _list(report.absent, "notes")
    if len(report.unfinished):
        lines = [
            f"{method_title(run.method)}, {setting_title(run.dataset, run.labels)}: {run.target}, seed {run.seed}"
            for run in report.unfinished.itertuples()
        ]
        parts += f"<details><summary>{len(lines)} unfinished runs</summary>{_list(lines, 'notes')}</details>"
    title = "Left out and unfinished"
    return [("remarks", title, f'<section id="remarks"><h2>{title}</h2>{parts}</section>')] if parts else []


def _settings_section(report: Report) -> Section:
    """The scientific settings: what all runs share, and what each experiment has of its own."""
    cells = report.results.cells
    configs = [report.configs[config_hash] for config_hash in cells["config_hash"]]
    differ = set(differing(configs))
    shared = {name: value for name, value in configs[0].items() if name not in differ}
    parts = [_details(f"Shared by all {len(configs)} experiments", "", yaml.safe_dump(shared, sort_keys=False))]
    for row, config in zip(cells.itertuples(), configs, strict=True):
        group = Group(row.dataset, row.labels, row.method, row.kind)
        own = {name: value for name, value in config.items() if name in differ}
        about = f"config hash {row.config_hash}, version {row.version}, {row.scale} scale, {row.runs} runs"
        attributes = _attributes(datasets=json.dumps([row.dataset]), labels=row.labels)
        parts.append(
            _details(
                f"{group.title} · {group.setting}", attributes, f"# {about}\n{yaml.safe_dump(own, sort_keys=False)}"
            )
        )
    title = "Settings"
    return "settings", title, f'<section id="settings"><h2>{title}</h2>{"".join(parts)}</section>'


def _details(title: str, attributes: str, text: str) -> str:
    return (
        f'<details class="panel"{attributes}><summary>{_text(title)}</summary>'
        f'<pre tabindex="0">{_text(text)}</pre></details>'
    )


def _provenance_section(report: Report, command: str) -> Section:
    runs = report.results.runs
    rows = [("made by", command), ("protocol", report.results.protocol)]
    rows.append(("seeds", ", ".join(map(str, sorted(set(runs["seed"]))))))
    for name, values in environments(runs).items():
        said = [value if count == len(runs) else f"{value} ({count} runs)" for value, count in values.most_common()]
        rows.append((name, ", ".join(said)))
    body = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in rows)
    title = "Where it comes from"
    return "provenance", title, f'<section id="provenance"><h2>{title}</h2><dl>{body}</dl></section>'
