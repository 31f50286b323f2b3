"""A report on every claim of the paper: its numbers, what was run here and at which scale, and what remains to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.baselines import differences
from semilearn_ext.report.gains import interval_cell
from semilearn_ext.report.layout import signed, wins_text
from semilearn_ext.report.methods import MethodId, dataset_title, setting_title
from semilearn_ext.report.other_claims import about_hours, figure_section, grid, observation_section, to_be_run
from semilearn_ext.report.paper_scale import scale_of
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import paired_gain

Pair = tuple[MethodId, MethodId]
_COLUMNS = ("Benchmark", "Comparison", "Scale", "Gain", "95 % interval", "Pairs won", "Seeds")


class Claim(NamedTuple):
    """A claim that the first method of every pair in ``pairs`` is better than the second."""

    title: str
    where: str
    pairs: Sequence[Pair]
    labels: Sequence[int] = (10, 5)
    datasets: Sequence[str] = tuple(paper_numbers.dataset_order())
    metric: str = "target/top1"


def _m(base: str, plugin: str = "", variant: str = "") -> MethodId:
    return MethodId(base, (plugin,) if plugin else (), variant)


_BASES = ("freematch", "fixmatch", "stylematch")
_UPCSC = [(_m(base, "upcsc"), _m(base)) for base in _BASES]
CLAIMS = (
    Claim("UPCSC improves its base with ten labels per class", "Table 2 (`label_10`)", _UPCSC, (10,)),
    Claim("UPCSC improves its base with five labels per class", "Table 3 (`label_5`)", _UPCSC, (5,)),
    Claim(
        "UPCSC is better than other plug-ins",
        "Tables 4 (`plugins`) and D (`plugins_freematch`)",
        [
            (_m(base, "upcsc"), _m(base, rival))
            for base in ("fixmatch", "stylematch", "freematch")
            for rival in ("fbcsa", "dgwm")
        ],
    ),
    Claim(
        "UPC and SC each improve FixMatch, and both together most",
        "Tables 5 and A (`ablation`)",
        [
            *((_m("fixmatch", part), _m("fixmatch")) for part in ("upc", "sc")),
            *((_m("fixmatch", "upcsc"), _m("fixmatch", part)) for part in ("upc", "sc")),
        ],
        datasets=("pacs", "office_home"),
    ),
    Claim(
        "Unconfident images as negatives improve UPC",
        "Table B (`ablation_upc`)",
        [
            (_m("fixmatch", "upc"), _m("fixmatch", "upc", "without_uu")),
            (_m("fixmatch", "upc", "without_uu"), _m("fixmatch")),
        ],
        (10,),
        ("pacs",),
    ),
    Claim(
        "A weighted surrogate class is better than the top-1 or average proxy",
        "Table C (`ablation_sc`); with FixMatch, the average proxy is better in the paper, too",
        [(_m(b, "upcsc"), _m(b, "upcsc", v)) for b in ("fixmatch", "stylematch") for v in ("top1_proxy", "avg_proxy")],
        (10,),
        ("pacs",),
    ),
    Claim(
        "UPC and UPCSC raise the accuracy on unlabelled source images",
        "Figures 5 and B (curves without printed numbers; UPC is above FixMatch, and UPCSC above UPC)",
        [
            (_m("fixmatch", "upcsc"), _m("fixmatch")),
            (_m("fixmatch", "upc"), _m("fixmatch")),
            (_m("fixmatch", "upcsc"), _m("fixmatch", "upc")),
        ],
        (10,),
        ("pacs",),
        "unlabeled/top1",
    ),
)


class Evidence(NamedTuple):
    """The result of one pair of methods in one experiment."""

    setting: str
    pair: str
    scale: str
    gain: str
    interval: str
    wins: str
    seeds: int


def evidence(claim: Claim, results: Results) -> list[Evidence]:
    """Every experiment that is relevant to ``claim``, including benchmarks and label counts that the paper lacks.

    Experiments with different training steps are not compared.
    """
    runs = {Group(*key): group_runs for key, group_runs in results.runs.groupby(GROUP)}
    rows = []
    for method, rival in claim.pairs:
        for cell in results.cells[results.cells["method"] == method].itertuples():
            if not _is_relevant(cell, claim):
                continue
            rivals = results.cells[
                (results.cells["method"] == rival)
                & (results.cells["dataset"] == cell.dataset)
                & (results.cells["labels"] == cell.labels)
            ]
            step = results.configs[cell.config_hash].get("step")
            others = sorted(
                (other for other in rivals.itertuples() if results.configs[other.config_hash].get("step") == step),
                key=lambda other: len(differences(cell, other, results.configs)),
            )
            if not others:
                continue
            group, other = Group.of(cell), Group.of(others[0])
            values = [_values(runs[key], claim.metric) for key in (group, other)]
            gain = paired_gain(*values)
            if gain.pairs:
                rows.append(
                    Evidence(
                        setting_title(group.dataset, group.labels),
                        f"{group.title} against {other.title}",
                        scale_of(results.configs[cell.config_hash], group.dataset, group.labels),
                        signed(gain.mean),
                        interval_cell(gain.low, gain.high).text,
                        wins_text(gain.wins, gain.pairs, gain.ties),
                        gain.seeds,
                    )
                )
    return rows


def _is_relevant(cell: Any, claim: Claim) -> bool:
    if cell.dataset in paper_numbers.dataset_order():
        return cell.dataset in claim.datasets and cell.labels in claim.labels
    return 10 in claim.labels or cell.labels == 5


def _values(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """``runs`` with ``metric`` in percent as the column ``value``, without runs that did not record it."""
    if metric == "target/top1":
        return runs
    values = runs["metrics"].map(lambda metrics: metrics.get(metric, float("nan")))
    return runs.assign(value=100 * values.astype(float)).dropna(subset=["value"])


def paper_gains(claim: Claim) -> list[str]:
    """``FixMatch + UPCSC against FixMatch: PACS +2.8, …`` for every pair with results in the paper."""
    lines = []
    for better, worse in claim.pairs if claim.metric == "target/top1" else ():
        parts = []
        for labels in claim.labels:
            for dataset in claim.datasets:
                numbers = [paper_numbers.printed(dataset, labels, method) for method in (better, worse)]
                if numbers[0] is not None and numbers[1] is not None:
                    count = f" ({labels} labels)" if len(claim.labels) > 1 else ""
                    parts.append(f"{dataset_title(dataset)} {signed(numbers[0][0] - numbers[1][0])}{count}")
        if parts:
            lines.append(f"{better.title} against {worse.title}: {', '.join(parts)}")
    return lines


def _methods_of(claim: Claim) -> set[MethodId]:
    return {method for pair in claim.pairs for method in pair}


def render(
    results: Results | None,
    hours: Mapping[tuple[str, int, MethodId], float],
    command: str,
    studies: Sequence[Path] = (),
) -> str:
    """The complete page.

    ``hours``: estimated GPU hours of the paper's rows, by benchmark, label count and method. ``studies``: folders with
    the records' figures.
    """
    parts = [HEAD.format(command=command)]
    for claim in CLAIMS:
        parts += [f"## {claim.title}", f"In the paper: {claim.where}."]
        if printed := paper_gains(claim):
            parts.append("\n".join(f"- {line}" for line in printed))
        rows = evidence(claim, results) if results is not None else []
        parts.append(grid(_COLUMNS, rows) if rows else "Nothing has been run here yet.")
        parts.append(_remaining(claim, hours))
    parts += [*observation_section(results, hours), *figure_section(studies, hours)]
    return "\n\n".join(parts) + "\n"


def _remaining(claim: Claim, hours: Mapping[tuple[str, int, MethodId], float]) -> str:
    """The commands for the rows of ``claim``, one per benchmark."""
    commands, total = [], 0.0
    for dataset in claim.datasets:
        rows = {
            (labels, method): value
            for (name, labels, method), value in hours.items()
            if name == dataset and labels in claim.labels and method in _methods_of(claim)
        }
        if rows:
            labels = ",".join(str(count) for count in claim.labels)
            methods = ",".join(dict.fromkeys(method.name for _, method in rows))
            time, styled = sum(rows.values()), any(method.base == "stylematch" for _, method in rows)
            places = f"--data_dir data {STYLE if styled else ''}--gpus 0,1"
            commands.append(
                f"ssdg reproduce {dataset} --labels {labels} --methods {methods} {places}   {about_hours(time)}"
            )
            total += time
    return to_be_run(commands, total)


STYLE = "--adain_dir weights/adain "
HEAD = """# Reproduction record

Generated by `{command}`. For every claim of the paper: its own numbers, what was run here, how far that is
from the paper's scale, the results, and what remains to be run on a GPU.

Gains are in points: the mean over targets of the difference, paired by target and seed. The interval is a 95 %
percentile bootstrap over seeds, stratified by target; it is too narrow with few seeds, and there is none with one. It
treats the runs of one seed on several targets as independent; the table `statistics` of each study does not.
Reduced runs can show that this implementation behaves like the authors' and what happens in a smaller setting. They
are no evidence for or against a claim at the paper's scale. Different training steps are not compared with each other.

One training step equals that of the released code, by test, for every method in it:
[test_released_steps.py](../tests/algorithms/test_released_steps.py) compares losses, gradients and statistics of batch
norm with recorded ones, and [test_released_pipeline.py](../tests/test_released_pipeline.py) compares views, batches and
learning rates; [the released code](../docs/released_code.md) lists all comparisons.

A command below runs the rows of one claim on one benchmark, with five seeds and four targets. Rows that several claims
share are trained once, re-running a command resumes it, and records and tables are written at the end. Without
`--labels` and `--methods`, all rows of the benchmark are run; `ssdg reproduce pacs --dry_run` prints the plan. GPU
hours are estimates without evaluations, because no run on a GPU has been timed yet: an assumed 2,800 images per second
of FixMatch at 224 pixels, and the passes of every other method's step relative to FixMatch. They double on a GPU that
is half as fast. The plan uses the measured rate once runs on a GPU are finished."""
