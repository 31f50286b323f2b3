"""The paper's tables, and tables of all runs, as pure functions of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.aggregate import by_target as average_by_target
from semilearn_ext.report.aggregate import over_targets_and_seeds
from semilearn_ext.report.baselines import note_lines
from semilearn_ext.report.evaluations import OBSERVED_EPOCH, RATES, observed
from semilearn_ext.report.layout import EMPTY, Cell, Column, Panel, Table, number, signed, spread, with_best
from semilearn_ext.report.methods import MethodId, dataset_title, labels_title, setting_title
from semilearn_ext.report.paper_tables import PAPER_TABLES, PaperTable
from semilearn_ext.report.results import Results, sort_key
from semilearn_ext.report.run_groups import GROUP, Group, data_setting_counts, data_settings
from semilearn_ext.runs.result import AVERAGES, PROTOCOLS

OVER_SEEDS = "mean ± standard deviation (ddof 1) over seeds (five unless n is given)"
CHANGE = "In parentheses: change from the base algorithm."


def caption(results: Results) -> str:
    best = " The best is in bold." if results.metric.is_accuracy else ""
    return f"{results.what()}: the mean over targets for each seed, then {OVER_SEEDS}. {CHANGE}{best}"


def paper_table(name: str, results: Results) -> Table | None:
    """A table of the paper, with our numbers next to the paper's; None if there are no runs for it.

    It needs runs of a method that the paper prints there for the first time. Benchmarks that are not in the paper come
    after those that are, without the paper's columns; benchmarks and label counts without runs are left out.
    """
    layout, cells = PAPER_TABLES[name], results.cells
    main = [] if name.startswith("label") else paper_numbers.methods_of("label_10")
    new = [method for method in paper_numbers.methods_of(name) if method not in main]
    others = set(paper_numbers.dataset_order()) - set(layout.datasets)
    used = cells[
        cells["labels"].isin(layout.labels) & ~cells["dataset"].isin(others) & cells["method"].isin(layout.methods)
    ]
    if used[used["method"].isin(new)].empty:
        return None
    panels = [
        _panel_of_datasets(labels, used[used["labels"] == labels], layout, results)
        for labels in layout.labels
        if (used["labels"] == labels).any()
    ]
    text = caption(results)
    notes = [*_notes(used), *_absent(used, layout), *_scale_notes(used)]
    if used["paper_mean"].notna().any():
        text += " Paper: as printed in the paper. Difference: ours minus the paper's."
    elif results.protocol != "last":
        notes.append("The paper's numbers are those of the last weights, so they are not shown next to these.")
    return Table(name, results.titled(layout.title), text, panels, _data(used, results), notes)


def _panel_of_datasets(labels: int, cells: pd.DataFrame, layout: PaperTable, results: Results) -> Panel:
    """One row per method, one column per benchmark and, for those of the paper, its number and the difference."""
    datasets = list(dict.fromkeys(cells["dataset"]))
    with_paper = set(paper_numbers.dataset_order()) if results.with_paper else set()
    columns, values = [Column("Method")], []
    for dataset in datasets:
        values.append(len(columns))
        titles = ("ours", "paper", "difference") if dataset in with_paper else (results.quantity,)
        columns += [Column(title, dataset_title(dataset), dataset) for title in titles]
    by_group = {Group.of(row): row for row in cells.itertuples()}
    rows: list[list[Cell]] = []
    rules = set()
    for part in layout.parts:
        rules.add(len(rows))
        for method in part:
            for setup in sorted(set(cells.loc[cells["method"] == method, "setup"])) or [""]:
                groups = [Group(dataset, labels, method, setup) for dataset in datasets]
                row = [_name(groups[0])]
                for group in groups:
                    row.append(_value(by_group.get(group), results))
                    row += _paper(by_group.get(group), group) if group.dataset in with_paper else []
                rows.append(row)
    panel = Panel(labels_title(labels), columns, rows, labels=labels, rules=frozenset(rules - {0}))
    return _with_best(panel, values, results)


def _with_best(panel: Panel, columns: Sequence[int], results: Results) -> Panel:
    return with_best(panel, columns, results.metric.decimals) if results.metric.is_accuracy else panel


def _name(group: Group) -> Cell:
    return Cell(group.title, group.title.lower())


def _value(row: Any, results: Results) -> Cell:
    if row is None:
        return EMPTY
    return spread(row.mean, row.std, row.n, row.change, results.metric.decimals)


def _paper(row: Any, group: Group) -> list[Cell]:
    """The paper's number, which is shown even without runs, and the difference from it."""
    printed = paper_numbers.printed(group.dataset, group.labels, group.method)
    if printed is None:
        return [EMPTY, EMPTY]
    return [spread(*printed), EMPTY if row is None else _difference(row)]


def _difference(row: Any) -> Cell:
    return EMPTY if pd.isna(row.difference) else Cell(signed(row.difference), row.difference)


def _absent(used: pd.DataFrame, layout: PaperTable) -> list[str]:
    """A note on the paper's benchmarks and label counts that have no runs."""
    settings = set(used[["dataset", "labels"]].itertuples(index=False, name=None))
    absent = [
        setting_title(dataset, labels)
        for labels in layout.labels
        for dataset in layout.datasets
        if (dataset, labels) not in settings
    ]
    return [f"Left out, because there are no runs: {'; '.join(absent)}."] if absent else []


def _scale_notes(used: pd.DataFrame) -> list[str]:
    small = used[used["scale"].notna() & (used["scale"] != "paper")]
    datasets = ", ".join(dataset_title(dataset) for dataset in dict.fromkeys(small["dataset"]))
    if not datasets:
        return []
    meaning = " Differences from the paper's numbers mean little." if small["paper_mean"].notna().any() else ""
    return [f"The runs on {datasets} are at reduced scale, not at the paper's.{meaning}"]


def _notes(used: pd.DataFrame) -> list[str]:
    return note_lines(note for notes in used["notes"] for note in notes)


def flat(frame: pd.DataFrame, results: Results) -> pd.DataFrame:
    """``frame`` for CSV, with columns for the parts of the method's name, the metric and the protocol."""
    methods = list(frame["method"])
    frame = frame.assign(method=[method.name for method in methods], metric=results.metric.name)
    column = frame.columns.get_loc("method") + 1
    frame.insert(column, "base", [method.base for method in methods])
    frame.insert(column + 1, "plugins", [" ".join(method.plugins) for method in methods])
    frame.insert(column + 2, "variant", [method.variant for method in methods])
    return frame.rename(columns={"labels": "labels_per_class"}).assign(protocol=results.protocol)


def _data(used: pd.DataFrame, results: Results) -> pd.DataFrame:
    """The CSV of a table of means."""
    columns = [
        *(*GROUP, "mean", "std", "n", "change", "paper_mean", "paper_std", "difference"),
        *("runs", "seconds", "scale", "version", "config_hash"),
    ]
    return flat(used[columns], results)


def each_run(results: Results) -> pd.DataFrame:
    """One row per run with everything that its last evaluation recorded (accuracies between 0 and 1)."""
    averages = [name for name in AVERAGES if results.runs[name].notna().any()]
    columns = [*GROUP, "target", "seed", *PROTOCOLS, *averages, "seconds", "scale", "version", "config_hash"]
    metrics = pd.DataFrame(list(results.runs["metrics"]), index=results.runs.index)
    metrics = metrics.drop(columns="seconds", errors="ignore").sort_index(axis=1)
    identity = flat(results.runs[columns], results).drop(columns=["metric", "protocol"])
    return pd.concat([identity, data_settings(results.runs, results.configs), metrics], axis=1)


def summary(results: Results) -> Table:
    """All methods, grouped by benchmark and label count."""
    panels = []
    for (dataset, labels), cells in results.cells.groupby(["dataset", "labels"], sort=False):
        with_paper = cells["paper_mean"].notna().any()
        titles = ["Method", results.quantity, *(("paper", "difference") if with_paper else ()), "seconds per run"]
        rows = []
        for row in cells.itertuples():
            paper = [spread(row.paper_mean, row.paper_std), _difference(row)] if with_paper else []
            rows.append([_name(Group.of(row)), _value(row, results), *paper, number(row.seconds, 0)])
        panels.append(_with_best(_panel(dataset, labels, titles, rows), [1], results))
    data = data_setting_counts(results.runs, results.configs)
    notes = [*_notes(results.cells), *_scale_notes(results.cells), *(f"{name}: {text}" for name, text in data.items())]
    title = results.titled("All runs")
    return Table("summary", title, caption(results), panels, _data(results.cells, results), notes)


def _panel(dataset: str, labels: int, titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> Panel:
    return Panel(setting_title(dataset, labels), [Column(title) for title in titles], rows, labels, dataset)


def by_target(results: Results) -> Table:
    """All methods with one column per target domain, and the mean over targets."""
    return _by_target("by_target", "By target domain", results, results.cells)


def compare(results: Results, methods: Sequence[MethodId]) -> Table:
    """The ``methods`` side by side, in their order."""
    place = {method: k for k, method in enumerate(methods)}
    chosen = results.cells[results.cells["method"].isin(place)]
    chosen = chosen.sort_values("method", key=lambda column: column.map(place), kind="stable")
    return _by_target("compare", f"Comparison: {', '.join(method.title for method in methods)}", results, chosen)


def _by_target(name: str, title: str, results: Results, cells: pd.DataFrame) -> Table:
    averages = average_by_target(results.runs)
    lookup = {(Group.of(row), row.target): (row.mean, row.std, row.n) for row in averages.itertuples()}
    panels = []
    for (dataset, labels), setting_cells in cells.groupby(["dataset", "labels"], sort=False):
        targets = results.targets[dataset]
        rows = []
        for row in setting_cells.itertuples():
            values = [lookup.get((Group.of(row), target)) for target in targets]
            shown = [EMPTY if v is None else spread(*v, decimals=results.metric.decimals) for v in values]
            rows.append([_name(Group.of(row)), *shown, _value(row, results)])
        panel = _panel(dataset, labels, ("Method", *targets, "mean"), rows)
        panels.append(_with_best(panel, range(1, len(targets) + 2), results))
    best = " The best is in bold." if results.metric.is_accuracy else ""
    text = f"{results.what()}: {OVER_SEEDS}. The mean is over seeds that have all targets. {CHANGE}{best}"
    means = cells[[*GROUP, "mean", "std", "n"]].assign(target="mean")
    data = pd.concat([cells[GROUP].merge(averages, on=GROUP), means], ignore_index=True)
    notes = [*_notes(cells), *_scale_notes(cells)]
    return Table(name, results.titled(title), text, panels, flat(data, results), notes)


def observation(results: Results) -> Table | None:
    """The paper's observation on FixMatch with ten labels, with our numbers next to the paper's; None without runs."""
    evaluations = results.evaluations
    own = evaluations[(evaluations["method"] == MethodId("fixmatch")) & (evaluations["labels"] == 10)]
    near = observed(own)
    if near.empty:
        return None
    rates = pd.concat(
        [over_targets_and_seeds(near.assign(value=near[rate]), results.targets).assign(rate=rate) for rate in RATES],
        ignore_index=True,
    )
    datasets = list(dict.fromkeys(rates["dataset"].sort_values(key=sort_key)))
    columns = [Column("")]
    for dataset in datasets:
        titles = ("ours", "paper", "difference") if dataset in paper_numbers.observation().index else ("ours",)
        columns += [Column(title, dataset_title(dataset), dataset) for title in titles]
    by_key = {(row.dataset, row.setup, row.rate): row for row in rates.itertuples()}
    rows = [
        [Cell(f"{title} [{setup}]" if setup else title, title), *_rates_of(by_key, datasets, setup, rate)]
        for rate, title in RATES.items()
        for setup in sorted(set(rates["setup"]))
    ]
    epochs = sorted({near["epoch"].min(), near["epoch"].max()})
    text = (
        f"FixMatch, 10 labels per class, at the evaluation nearest to epoch {OBSERVED_EPOCH:g} (epoch "
        f"{' to '.join(f'{epoch:g}' for epoch in epochs)}). UUS rate: the share of unlabelled images that are "
        "unconfident. Inclusion rate: the share of those whose true class is among the classes with a confidence above "
        f"1 / C. The mean over targets for each seed, then {OVER_SEEDS}. The paper trained for three epochs only."
    )
    notes = []
    if left_out := len(own.drop_duplicates([*GROUP, "target", "seed"])) - len(near):
        notes.append(
            f"{left_out} runs are left out, because they have no evaluation within half an epoch, or no unconfident "
            "images."
        )
    data = flat(rates.assign(rate=rates["rate"].str.removeprefix("unlabeled/")), results)
    panel = Panel(labels_title(10), columns, rows, labels=10)
    return Table("observation", "Unconfident images", text, [panel], data.drop(columns=["metric", "protocol"]), notes)


def _rates_of(by_key: Mapping[Any, Any], datasets: Sequence[str], setup: str, rate: str) -> list[Cell]:
    printed = paper_numbers.observation()[rate.removeprefix("unlabeled/")]
    cells = []
    for dataset in datasets:
        row = by_key.get((dataset, setup, rate))
        cells.append(EMPTY if row is None else spread(row.mean, row.std, row.n, decimals=2))
        if dataset in printed.index:
            difference = float("nan") if row is None else row.mean - printed[dataset]
            cells.append(number(float(printed[dataset]), 2))
            cells.append(EMPTY if pd.isna(difference) else Cell(signed(difference, 2), difference))
    return cells
