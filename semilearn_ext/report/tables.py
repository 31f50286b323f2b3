"""The paper's tables by name, and tables of whatever was run. Each is a function of the results; none reads a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.evaluations import OBSERVED_EPOCH, RATES, observed, rates
from semilearn_ext.report.frames import Group, Targets, note_lines, over_targets
from semilearn_ext.report.kinds import GROUP
from semilearn_ext.report.layout import EMPTY, Cell, Column, Panel, Table, number, signed, spread, with_best
from semilearn_ext.report.names import dataset_title, method_title, setting_title

PROTOCOL_WORDS = {
    "last": "after the last iteration (protocol last, the paper's)",
    "source_val": "at the evaluation that held-out source images choose (protocol source_val)",
    "oracle": "at the best evaluation on the target itself (protocol oracle): an upper bound, never a result",
}
PAPER_DATASETS = ("pacs", "office_home", "digits_dg", "mini_domainnet")


class Results(NamedTuple):
    """What tables are made from."""

    runs: pd.DataFrame
    """A row a finished run: its group, target, seed and ``accuracy`` in percent by the protocol."""
    cells: pd.DataFrame
    """A row a group: see :func:`semilearn_ext.report.frames.results`."""
    evaluations: pd.DataFrame
    targets: Targets
    protocol: str

    def caption(self) -> str:
        return (
            f"Accuracy in percent on the domain left out, {PROTOCOL_WORDS[self.protocol]}: for each seed the mean over "
            "targets, then mean ± standard deviation (ddof 1) over seeds, five where no n is given. "
        )


class Named(NamedTuple):
    """A table of the paper: its rows in parts, the benchmarks and label counts it covers."""

    title: str
    rows: Sequence[Sequence[str]]
    labels: Sequence[int] = (10, 5)
    datasets: Sequence[str] = PAPER_DATASETS


def _with_plugins(base: str) -> tuple[str, ...]:
    return (base, f"{base}_fbcsa", f"{base}_dgwm", f"{base}_upcsc")


_BASES = ("erm", "meanteacher", "freematch", "fixmatch", "stylematch")
_UPCSC = ("freematch_upcsc", "fixmatch_upcsc", "stylematch_upcsc")

NAMED: Mapping[str, Named] = {
    "label_10": Named("Main results, ten labels a class", (_BASES, _UPCSC), (10,)),
    "label_5": Named("Main results, five labels a class", (_BASES, _UPCSC), (5,)),
    "plugins": Named("Plug-ins on FixMatch and StyleMatch", (_with_plugins("fixmatch"), _with_plugins("stylematch"))),
    "plugins_freematch": Named("Plug-ins on FreeMatch", (_with_plugins("freematch"),)),
    "ablation": Named(
        "Components of UPCSC",
        (("fixmatch", "fixmatch_upc", "fixmatch_sc", "fixmatch_upcsc"),),
        datasets=("pacs", "office_home"),
    ),
    "ablation_upc": Named(
        "UPC without the unconfident images",
        (("fixmatch", "fixmatch_upc_without_uu", "fixmatch_upc", "fixmatch_upcsc"),),
        (10,),
        ("pacs",),
    ),
    "ablation_sc": Named(
        "SC's positive: top-1, average or weighted proxy",
        tuple((f"{b}_upcsc_top1_proxy", f"{b}_upcsc_avg_proxy", f"{b}_upcsc") for b in ("fixmatch", "stylematch")),
        (10,),
        ("pacs",),
    ),
}


def named_table(name: str, results: Results) -> Table | None:
    """A table of the paper, ours beside the paper's; None when nothing it is about was run.

    It is about the methods that the paper prints there for the first time. Benchmarks that the paper does not
    have come behind its own, without its columns; benchmarks and label counts without runs are left out.
    """
    spec = NAMED[name]
    cells, methods = results.cells, [method for part in spec.rows for method in part]
    known = {} if name.startswith("label") else dict.fromkeys(paper_numbers.methods_of("label_10"))
    own = [method for method in paper_numbers.methods_of(name) if method not in known]
    covered = cells["labels"].isin(spec.labels) & ~cells["dataset"].isin(set(PAPER_DATASETS) - set(spec.datasets))
    used = cells[covered & cells["method"].isin(methods)]
    if used[used["method"].isin(own)].empty:
        return None
    panels = [
        _datasets_panel(labels, used[used["labels"] == labels], spec.rows, results.protocol)
        for labels in spec.labels
        if (used["labels"] == labels).any()
    ]
    caption = results.caption() + "In brackets: change against the base. Best in bold."
    notes = [*_notes(used), *_absent(used, spec), *_scale_notes(used)]
    if used["paper_mean"].notna().any():
        caption += " Paper: as printed there. Difference: ours less the paper's."
    elif results.protocol != "last":
        notes.append("The paper's numbers are of the last iteration, so they are not set beside these.")
    return Table(name, spec.title, caption, panels, _data(used, results.protocol), notes)


def _datasets_panel(labels: int, cells: pd.DataFrame, parts: Sequence[Sequence[str]], protocol: str) -> Panel:
    """Methods by benchmarks; for the paper's benchmarks ours, the paper's and the difference."""
    datasets = list(dict.fromkeys(cells["dataset"]))
    beside = {dataset for dataset in datasets if dataset in PAPER_DATASETS and protocol == "last"}
    columns = [Column("Method")]
    for dataset in datasets:
        titles = ("ours", "paper", "difference") if dataset in beside else (_ours(protocol),)
        columns += [Column(title, dataset_title(dataset), dataset) for title in titles]
    printed = paper_numbers.accuracy().set_index(paper_numbers.KEY)
    by_group = {Group(row.dataset, row.labels, row.method, row.kind): row for row in cells.itertuples()}
    rows: list[list[Cell]] = []
    rules = set()
    for part in parts:
        rules.add(len(rows))
        for method in part:
            for kind in sorted(set(cells.loc[cells["method"] == method, "kind"])) or [""]:
                row = [_name(method, kind)]
                for dataset in datasets:
                    group = Group(dataset, labels, method, kind)
                    row.append(_accuracy(by_group.get(group)))
                    if dataset in beside:
                        row += _paper(by_group.get(group), printed, group)
                rows.append(row)
    for place, column in enumerate(columns):
        if column.title in ("ours", _ours(protocol)):
            rows = with_best(rows, place)
    return Panel(f"{labels} labels a class", columns, rows, labels=labels, rules=frozenset(rules - {0}))


def _ours(protocol: str) -> str:
    return "upper bound (oracle)" if protocol == "oracle" else "accuracy"


def _name(method: str, kind: str) -> Cell:
    title = method_title(method, kind)
    return Cell(title, title.lower())


def _accuracy(row: Any) -> Cell:
    return EMPTY if row is None else spread(row.mean, row.std, row.n, row.change)


def _paper(row: Any, printed: pd.DataFrame, group: Group) -> list[Cell]:
    """The paper's number, which is there with or without runs, and the difference from it."""
    key = (group.dataset, group.labels, group.method)
    if key not in printed.index:
        return [EMPTY, EMPTY]
    said = printed.loc[key]
    difference = EMPTY if row is None or pd.isna(row.difference) else Cell(signed(row.difference), row.difference)
    return [spread(float(said["paper_mean"]), float(said["paper_std"])), difference]


def _absent(used: pd.DataFrame, spec: Named) -> list[str]:
    """Which of the paper's benchmarks and label counts have no runs."""
    there = set(used[["dataset", "labels"]].itertuples(index=False, name=None))
    absent = [
        setting_title(dataset, labels)
        for labels in spec.labels
        for dataset in spec.datasets
        if (dataset, labels) not in there
    ]
    return [f"No runs, so left out: {'; '.join(absent)}."] if absent else []


def _scale_notes(used: pd.DataFrame) -> list[str]:
    small = used[used["scale"].notna() & (used["scale"] != "paper")]
    datasets = ", ".join(dataset_title(dataset) for dataset in dict.fromkeys(small["dataset"]))
    if not datasets:
        return []
    beside = " Differences from the paper's numbers say little." if small["paper_mean"].notna().any() else ""
    return [f"Runs on {datasets} are of reduced scale, not the paper's.{beside}"]


def _notes(used: pd.DataFrame) -> list[str]:
    return note_lines(note for notes in used["notes"] for note in notes)


def _data(used: pd.DataFrame, protocol: str) -> pd.DataFrame:
    """What the CSV of an accuracy table holds."""
    columns = [
        *(*GROUP, "mean", "std", "n", "base", "change", "paper_mean", "paper_std", "difference"),
        *("runs", "seconds", "scale", "version", "config_hash"),
    ]
    return used[columns].rename(columns={"labels": "labels_per_class"}).assign(protocol=protocol)


def each_run(results: Results) -> pd.DataFrame:
    """A row a run, in shares: what the tables can be made from again."""
    columns = [*GROUP, "target", "seed", *PROTOCOL_WORDS, "seconds", "scale", "version", "config_hash"]
    return results.runs[columns].rename(columns={"labels": "labels_per_class"})


def summary(results: Results) -> Table:
    """Every method found, by benchmark and label count."""
    panels = []
    for (dataset, labels), cells in results.cells.groupby(["dataset", "labels"], sort=False):
        beside = cells["paper_mean"].notna().any()
        titles = ["Method", _ours(results.protocol), *(("paper", "difference") if beside else ()), "seconds a run"]
        rows = []
        for row in cells.itertuples():
            paper = [spread(row.paper_mean, row.paper_std), _difference(row)] if beside else []
            rows.append([_name(row.method, row.kind), _accuracy(row), *paper, number(row.seconds, 0)])
        panels.append(_panel(dataset, labels, [Column(title) for title in titles], with_best(rows, 1)))
    caption = results.caption() + "In brackets: change against the base. Best in bold."
    notes = [*_notes(results.cells), *_scale_notes(results.cells)]
    return Table("summary", "Everything that was run", caption, panels, _data(results.cells, results.protocol), notes)


def _difference(row: Any) -> Cell:
    return EMPTY if pd.isna(row.difference) else Cell(signed(row.difference), row.difference)


def _panel(dataset: str, labels: int, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> Panel:
    return Panel(setting_title(dataset, labels), columns, rows, labels=labels, dataset=dataset)


def by_target(results: Results) -> Table:
    """Every method by target domain, and the mean over targets."""
    return _by_target("by_target", "By target domain", results, results.cells)


def compare(results: Results, methods: Sequence[str]) -> Table:
    """The ``methods`` side by side, in their order."""
    place = {method: k for k, method in enumerate(methods)}
    chosen = results.cells[results.cells["method"].isin(place)]
    chosen = chosen.sort_values("method", key=lambda column: column.map(place), kind="stable")
    return _by_target("compare", "Side by side: " + ", ".join(map(method_title, methods)), results, chosen)


def _by_target(name: str, title: str, results: Results, cells: pd.DataFrame) -> Table:
    one = over_targets(results.runs)
    lookup = {(Group(*row[:4]), row[4]): row[5:] for row in one.itertuples(index=False, name=None)}
    panels = []
    for (dataset, labels), same in cells.groupby(["dataset", "labels"], sort=False):
        targets = results.targets[dataset]
        rows = []
        for row in same.itertuples():
            group = Group(dataset, labels, row.method, row.kind)
            found = [lookup.get((group, target)) for target in targets]
            rows.append(
                [
                    _name(row.method, row.kind),
                    *(EMPTY if values is None else spread(*values) for values in found),
                    _accuracy(row),
                ]
            )
        for place in range(1, len(targets) + 2):
            rows = with_best(rows, place)
        columns = [Column(title) for title in ("Method", *targets, "mean")]
        panels.append(_panel(dataset, labels, columns, rows))
    caption = (
        f"Accuracy in percent on the domain left out, {PROTOCOL_WORDS[results.protocol]}: mean ± standard deviation "
        "(ddof 1) over seeds, five where no n is given. The mean is over seeds that have all targets; in brackets: "
        "change against the base. Best in bold."
    )
    means = cells[[*GROUP, "mean", "std", "n"]].assign(target="mean")
    data = pd.concat([cells[GROUP].merge(one, on=GROUP), means], ignore_index=True)
    data = data.rename(columns={"labels": "labels_per_class"}).assign(protocol=results.protocol)
    return Table(name, title, caption, panels, data, [*_notes(cells), *_scale_notes(cells)])


def observation(results: Results) -> Table | None:
    """The paper's observation of FixMatch with ten labels, ours beside the paper's; None without runs of it."""
    evaluations = results.evaluations
    own = evaluations[(evaluations["method"] == "fixmatch") & (evaluations["labels"] == 10)]
    near = observed(own)
    if near.empty:
        return None
    found = rates(near, results.targets).sort_values("dataset", key=_paper_first, kind="stable")
    datasets = list(dict.fromkeys(found["dataset"]))
    columns = [Column("")]
    for dataset in datasets:
        titles = ("ours", "paper", "difference") if dataset in PAPER_DATASETS else ("ours",)
        columns += [Column(title, dataset_title(dataset), dataset) for title in titles]
    by_key = {(row.dataset, row.kind, row.rate): row for row in found.itertuples()}
    kinds = sorted(set(found["kind"]))
    rows = [
        [Cell(f"{title} [{kind}]" if kind else title, title), *_rates_of(by_key, datasets, kind, rate)]
        for rate, title in RATES.items()
        for kind in kinds
    ]
    epochs = sorted(set(near["epoch"]))
    caption = (
        f"FixMatch, 10 labels a class, at the evaluation nearest epoch {OBSERVED_EPOCH:g} (epoch "
        f"{' to '.join(f'{epoch:g}' for epoch in dict.fromkeys((epochs[0], epochs[-1])))}). UUS rate: the share of "
        "unlabelled images that are unconfident. Inclusion rate: the share of those whose true class is among the "
        "classes with a confidence above 1 / C. For each seed the mean over targets, then mean ± standard deviation "
        "(ddof 1) over seeds, five where no n is given. The paper's runs had three epochs in all."
    )
    data = found.assign(rate=found["rate"].str.removeprefix("unlabeled/")).rename(
        columns={"labels": "labels_per_class"}
    )
    notes = []
    if left := len(own.drop_duplicates([*GROUP, "target", "seed"])) - len(near):
        notes.append(f"{left} runs have no evaluation within half an epoch of it, or no unconfident images; left out.")
    panel = Panel("10 labels a class", columns, rows, labels=10)
    return Table("observation", "What the unconfident images are", caption, [panel], data, notes)


def _rates_of(by_key: Mapping[Any, Any], datasets: Sequence[str], kind: str, rate: str) -> list[Cell]:
    printed = paper_numbers.observation()[rate.removeprefix("unlabeled/")]
    cells = []
    for dataset in datasets:
        row = by_key.get((dataset, kind, rate))
        cells.append(EMPTY if row is None else spread(row.mean, row.std, row.n, decimals=2))
        if dataset in PAPER_DATASETS:
            difference = float("nan") if row is None else row.mean - printed[dataset]
            cells.append(number(float(printed[dataset]), 2))
            cells.append(EMPTY if pd.isna(difference) else Cell(signed(difference, 2), difference))
    return cells


def _paper_first(column: pd.Series) -> pd.Series:
    return column.map(lambda dataset: PAPER_DATASETS.index(dataset) if dataset in PAPER_DATASETS else 99)
