"""The report as a single self-contained HTML file. The template is ``page_files/page.html``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from semilearn_ext.report.aggregate import by_target
from semilearn_ext.report.build import Report
from semilearn_ext.report.evaluations import curves, metric_names
from semilearn_ext.report.gains import MAX_LINES, pairs_first
from semilearn_ext.report.methods import dataset_title, labels_title, setting_title
from semilearn_ext.report.metrics import Metric
from semilearn_ext.report.provenance import environments
from semilearn_ext.report.results import Results, sort_key
from semilearn_ext.report.run_groups import Group, data_setting_counts, differing

_FILES = Path(__file__).parent / "page_files"


def page(report: Report, command: str) -> str:
    """The content of the file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    cells = report.results.cells
    settings = dict.fromkeys(cells[["dataset", "labels"]].itertuples(index=False, name=None))
    data = _chart_data(report.results)
    charts = _charts(report.results, bool(data["curves"]))
    remarks = {
        "warnings": report.warnings,
        "absent": report.absent,
        "unfinished": [str(path) for path in report.unfinished["path"]],
    }
    return environment.get_template("page.html").render(
        style=Markup((_FILES / "page.css").read_text(encoding="utf-8")),
        script=Markup((_FILES / "page.js").read_text(encoding="utf-8")),
        counts=_counts(report),
        measured=report.results.what(),
        contents=_contents(report, charts, bool(any(remarks.values()))),
        datasets=[(dataset, dataset_title(dataset)) for dataset in dict.fromkeys(cells["dataset"])],
        label_counts=[(count, labels_title(count)) for count in sorted(set(cells["labels"]), reverse=True)],
        tables=report.tables,
        charts=charts,
        settings=[(dataset, labels, setting_title(dataset, labels)) for dataset, labels in settings],
        **remarks,
        **_experiments(report.results),
        provenance=_provenance(report, command),
        data=data,
    )


def _counts(report: Report) -> str:
    runs = report.results.runs
    counts = {"finished run": len(runs), "method": runs["method"].nunique(), "benchmark": runs["dataset"].nunique()}
    counts["seed"] = runs["seed"].nunique()
    texts = [f"{count:,} {name}{'' if count == 1 else 's'}" for name, count in counts.items()]
    return " · ".join([*texts, *([f"{len(report.unfinished):,} unfinished"] if len(report.unfinished) else [])])


def _charts(results: Results, has_curves: bool) -> list[dict[str, str]]:
    deviation = "one standard deviation (ddof 1) to each side"
    charts = [
        {
            "name": "curves",
            "title": "Metrics over epochs",
            "caption": f"The mean over targets for each seed. Lines: mean over seeds. Bands: {deviation}. Seeds that "
            "lack a target are left out.",
        },
        {
            "name": "bars",
            "title": results.titled("Bars by target domain"),
            "caption": f"{results.what()}. Bars: mean over seeds. Lines: {deviation}.",
        },
    ]
    return charts if has_curves else charts[1:]


def _contents(report: Report, charts: list[dict[str, str]], has_remarks: bool) -> list[tuple[str, str]]:
    """Anchors and titles, in the order of the page."""
    first, *others = [(table.name, table.title) for table in report.tables]
    remarks = [("remarks", "Missing and unfinished")] if has_remarks else []
    charted = [(chart["name"], chart["title"]) for chart in charts]
    return [first, *charted, *others, *remarks, ("settings", "Settings"), ("provenance", "Provenance")]


def _experiments(results: Results) -> dict[str, Any]:
    """The scientific settings: those that all experiments share, and those of each."""
    configs = [results.configs[config_hash] for config_hash in results.cells["config_hash"]]
    differ = set(differing(configs))
    shared = {name: value for name, value in configs[0].items() if name not in differ}
    experiments = []
    for row, config in zip(results.cells.itertuples(), configs, strict=True):
        group = Group.of(row)
        about = f"# config hash {row.config_hash}, version {row.version}, {row.scale} scale, {row.runs} runs\n"
        own = {name: value for name, value in config.items() if name in differ}
        experiments.append(
            {
                "title": f"{group.title} · {group.setting}",
                "text": about + yaml.safe_dump(own, sort_keys=False),
                "dataset": group.dataset,
                "labels": group.labels,
            }
        )
    return {"shared": yaml.safe_dump(shared, sort_keys=False), "experiments": experiments}


def _provenance(report: Report, command: str) -> list[tuple[str, str]]:
    results = report.results
    rows = [("command", command), ("metric", results.metric.name), ("protocol", results.protocol)]
    rows.append(("seeds", ", ".join(map(str, sorted(set(results.runs["seed"]))))))
    rows += data_setting_counts(results.runs, results.configs).items()
    for name, values in environments(results.runs).items():
        texts = [
            value if count == len(results.runs) else f"{value} ({count} runs)" for value, count in values.most_common()
        ]
        rows.append((name, ", ".join(texts)))
    return rows


def _chart_data(results: Results) -> dict[str, Any]:
    """The data that the script draws. The colour of a method is determined by its position in ``names``."""
    names = _names(results)
    lines = sorted(curves(results.evaluations, results.targets), key=lambda curve: names.index(curve.group.title))
    drawn: list[dict[str, Any]] = [
        {
            "dataset": curve.group.dataset,
            "labels": int(curve.group.labels),
            "name": curve.group.title,
            "seeds": curve.seeds,
            "epochs": curve.epochs,
            "mean": curve.mean,
            "std": curve.std,
        }
        for curve in lines
        if len(curve.epochs) > 1  # runs that are evaluated at the end only have no curve
    ]
    # Averaged weights, for example, may have been measured only at the last evaluation.
    drawable = {name for curve in drawn for name in curve["mean"]}
    return {
        "names": names,
        "shown": MAX_LINES,
        "metric": _metric(results.metric),
        "metrics": [_metric(Metric(name)) for name in metric_names(results.evaluations) if name in drawable],
        "curves": drawn,
        "bars": sorted(_bars(results), key=lambda bar: names.index(bar["name"])),
    }


def _names(results: Results) -> list[str]:
    """The methods in the initial order of the charts: each base next to the base with UPCSC."""
    ordered = results.cells.sort_values("method", key=sort_key, kind="stable")
    groups = [Group.of(row) for row in ordered.itertuples()]
    order = pairs_first(group.method for group in groups)
    return list(dict.fromkeys(group.title for group in sorted(groups, key=lambda group: order.index(group.method))))


def _metric(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "title": metric.title,
        "axis": metric.axis,
        "percent": metric.is_share,
        "decimals": metric.decimals,
    }


def _bars(results: Results) -> list[dict[str, Any]]:
    averages = {(Group.of(row), row.target): row for row in by_target(results.runs).itertuples()}
    bars: list[dict[str, Any]] = []
    for cell in results.cells.itertuples():
        group, targets = Group.of(cell), list(results.targets[cell.dataset])
        rows = [*(averages.get((group, target)) for target in targets), cell]
        bars.append(
            {
                "dataset": group.dataset,
                "labels": int(group.labels),
                "name": group.title,
                "targets": [*targets, "mean"],
                "mean": [_finite(row.mean) if row is not None else None for row in rows],
                "std": [_finite(row.std) if row is not None else None for row in rows],
                "n": [int(row.n) if row is not None else 0 for row in rows],
            }
        )
    return bars


def _finite(value: float) -> float | None:
    return None if value != value else round(value, 5)
