"""The claims of the paper that are not gains: unconfident images and their candidates, and figures of single runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.evaluations import OBSERVED_EPOCH, RATES, observed
from semilearn_ext.report.layout import DASH
from semilearn_ext.report.methods import MethodId, dataset_title
from semilearn_ext.report.paper_scale import scale_of
from semilearn_ext.report.results import Results
from semilearn_ext.report.run_groups import GROUP, Group
from semilearn_ext.report.statistics import stratified_interval

FIXMATCH, UPCSC = MethodId("fixmatch"), MethodId("fixmatch", ("upcsc",))
CANDIDATES = "unlabeled/candidates"
SEEDS, EPOCHS = 5, 20
"""Seeds and epochs of the paper's runs."""
FIGURES = {
    "tsne": ("tsne_*_numbers.csv", "silhouette of the classes by set, and squared MMD between source and target"),
    "landscape": ("landscape_*_eigenvalues.csv", "loss on source images, and the largest eigenvalues of its Hessian"),
}
_COLUMNS = ["method", "labelled source", "unlabelled source", "target", "mmd2", "loss", "lambda1", "lambda2"]


def observation_section(results: Results | None, hours: Mapping[tuple[str, int, MethodId], float]) -> list[str]:
    printed = paper_numbers.observation()
    lines = [
        f"- {dataset_title(str(row.Index))}: {100 * row.uus_rate:.0f} % are unconfident; of those, the true class of "
        f"{100 * row.inclusion_rate:.0f} % is a candidate"
        for row in printed.itertuples()
    ]
    lines.append(
        "- The number of candidates is typically 2 to 3 with few classes (PACS, DigitsDG), and mostly up to 15 % of "
        "the classes with many"
    )
    rows = [] if results is None else _observed_rows(results)
    head = ("Benchmark", "Scale", "Unconfident (%)", "Candidate is true (%)", "Candidates", "Runs", "Seeds")
    needed = {dataset: hours[dataset, 10, FIXMATCH] / SEEDS * OBSERVED_EPOCH / EPOCHS for dataset in printed.index}
    commands = [
        f"ssdg analyse observation --c fixmatch_{dataset}.yaml --data_dir data   {about_hours(time)}"
        for dataset, time in needed.items()
    ]
    return [
        "## Many unlabelled images are unconfident, and their true class is among few candidates",
        "In the paper: Table 1 and Figure 2, FixMatch after three epochs, ten labels per class.",
        "\n".join(lines),
        grid(head, rows) if rows else "Nothing has been run here yet.",
        *(["Mean over targets with its 95 % interval, at the evaluation nearest to epoch 3."] if rows else []),
        to_be_run(commands, sum(needed.values())),
    ]


def _observed_rows(results: Results) -> list[Sequence[object]]:
    """One row per experiment with FixMatch that was evaluated near the third epoch."""
    near = observed(results.evaluations[results.evaluations["method"] == FIXMATCH])
    hashes = {Group.of(cell): cell.config_hash for cell in results.cells.itertuples()}
    rows: list[Sequence[object]] = []
    for key, group_rows in near.groupby(GROUP, sort=False):
        group = Group(*key)
        scale = scale_of(results.configs[hashes[group]], group.dataset, group.labels)
        cells = [_mean_with_interval(group_rows, rate, 100, 0) for rate in RATES]
        cells.append(_mean_with_interval(group_rows, CANDIDATES, 1, 1))
        rows.append((group.setting, scale, *cells, len(group_rows), group_rows["seed"].nunique()))
    return rows


def _mean_with_interval(runs: pd.DataFrame, rate: str, factor: int, decimals: int) -> str:
    """``54 (52 to 56)``: the mean over targets, with a bootstrap over seeds that is stratified by target."""
    if rate not in runs:
        return DASH
    strata = [factor * values.dropna().to_numpy() for _, values in runs.groupby("target")[rate]]
    low, high = stratified_interval(strata)
    mean = sum(values.mean() for values in strata) / len(strata)
    interval = f" ({low:.{decimals}f} to {high:.{decimals}f})" if low == low else ""
    return f"{mean:.{decimals}f}{interval}"


def figure_section(studies: Sequence[Path], hours: Mapping[tuple[str, int, MethodId], float]) -> list[str]:
    """The numbers of the t-SNE and landscape figures in the folders ``studies``."""
    parts = [
        "## Features are better separated, and the loss is flatter",
        "In the paper: Figures 6, 7 and A (t-SNE, loss landscape), FixMatch and FixMatch + UPCSC on PACS, without "
        "numbers. Here, a figure shows one run of each method, so it is an illustration, not evidence.",
    ]
    for pattern, meaning in FIGURES.values():
        for file in (path for study in studies for path in sorted((study / "figures").glob(pattern))):
            table = pd.read_csv(file)
            columns = [name for name in _COLUMNS if name in table]
            rows = [[_short(value) for value in row] for row in table[columns].itertuples(index=False)]
            picture = file.with_name(f"{file.stem.rpartition('_')[0]}.png")
            link = f"[{picture.stem}]({'/'.join(picture.parts[-3:])})"
            parts += [f"{link}, reduced scale: {meaning}.", grid(columns, rows)]
    if len(parts) == 2:
        parts.append("Nothing has been run here yet.")
    runs = " ".join(f"--run runs/pacs/10lpc/{method.name}/sketch/seed1" for method in (FIXMATCH, UPCSC))
    time = sum(hours["pacs", 10, method] for method in (FIXMATCH, UPCSC))
    methods = ",".join(method.name for method in (FIXMATCH, UPCSC))
    commands = [
        f"ssdg reproduce pacs --labels 10 --methods {methods} --data_dir data --gpus 0,1   {about_hours(time)}",
        f"ssdg analyse tsne {runs}",
        f"ssdg analyse landscape --images 0 {runs}",
    ]
    return [*parts, to_be_run(commands, time)]


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def about_hours(hours: float) -> str:
    """A comment for the end of a command."""
    return f"# about {hours_text(hours)}"


def hours_text(hours: float) -> str:
    """``27 GPU hours``, ``1.4 GPU hours``, ``5 GPU minutes``."""
    if hours < 0.5:
        return f"{max(1, 60 * hours):.0f} GPU minutes"
    return f"{hours:.0f} GPU hours" if hours >= 10 else f"{hours:.1f} GPU hours"


def to_be_run(commands: Sequence[str], hours: float) -> str:
    text = "\n".join(commands)
    return f"To be run at the paper's scale, about {hours_text(hours)} in all:\n\n```sh\n{text}\n```"


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines])
