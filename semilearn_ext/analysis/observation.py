"""The paper's observation (its first table and figure): what the images are like that a method is not confident of.

UUS rate: the share of unlabelled source images the method is not confident of. Inclusion rate: the share of those whose
true class is among their candidates, the classes with a confidence above 1 / C. And how many candidates they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from semilearn_ext import training
from semilearn_ext.analysis import style
from semilearn_ext.analysis.features import features
from semilearn_ext.analysis.finished import FinishedRun, check_comparable, open_run
from semilearn_ext.analysis.rebuild import Rebuilt, rebuild
from semilearn_ext.engine.confidence import would_keep
from semilearn_ext.engine.evaluation import observation_metrics
from semilearn_ext.errors import UserError
from semilearn_ext.report.paper_numbers import observation as paper_observation
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import Settings, with_values
from semilearn_ext.settings.domains import targets_of
from semilearn_ext.settings.load import COMMAND_LINE

EPOCHS = 3
PAPER_ROW = "paper"
_RATES = ("uus_rate", "inclusion_rate")


@dataclass(frozen=True)
class Observed:
    """One run's unlabelled source images."""

    target: str
    seed: int
    epochs: float
    uus_rate: float
    inclusion_rate: float | None
    """None when the method is confident of every image."""
    candidates: np.ndarray
    """(C + 1,) how many of the unconfident images have 0, 1, … C candidates."""


def train_runs(settings: Settings) -> list[FinishedRun]:
    """A run of three epochs for every target, in a folder of their own: trained, gone on with, or there already."""
    if settings.origins.get("epoch") != COMMAND_LINE:
        settings = with_values(settings, epoch=EPOCHS)
    settings = with_values(settings, save_dir=str(Path(settings.save_dir) / "observation"))
    runs = []
    for target in targets_of(settings):
        one = with_values(settings, target_domain=target)
        training.run(one)
        runs.append(open_run(run_path(one)))
    return runs


def observe(rebuilt: Rebuilt) -> Observed:
    """Measure the run's last checkpoint. The true labels are used for measuring only."""
    split, settings = rebuilt.data.split, rebuilt.data.settings
    logits, labelled = (
        torch.from_numpy(features(rebuilt, part).logits).to(rebuilt.device)
        for part in (split.unlabelled, split.labelled)
    )
    weight = would_keep(rebuilt.algorithm, logits, labelled)
    if weight is None:
        raise UserError(f"{rebuilt.run.path}: {settings.algorithm} parts no confident from unconfident images")
    unconfident = weight < 1
    prob = logits.softmax(1)
    labels = rebuilt.data.labels[split.unlabelled].to(rebuilt.device)
    measured = observation_metrics(prob, labels, unconfident.float())
    counts = candidate_counts(prob, unconfident)
    uus_rate, inclusion_rate = (measured[f"unlabeled/{name}"] for name in _RATES)
    assert uus_rate is not None
    epochs = rebuilt.run.result["iterations"] / rebuilt.data.steps_per_epoch
    return Observed(settings.target_domain, settings.seed, epochs, uus_rate, inclusion_rate, counts)


def candidate_counts(prob: torch.Tensor, unconfident: torch.Tensor) -> np.ndarray:
    """How many of the unconfident rows of ``prob`` (N, C) have 0, 1, … C entries above 1 / C."""
    classes = prob.shape[1]
    numbers = (prob > 1 / classes).sum(1)[unconfident]
    return torch.bincount(numbers.cpu(), minlength=classes + 1).numpy()


def observation_table(observed: Sequence[Observed], paper: tuple[float, float] | None) -> pd.DataFrame:
    """A row a target (the mean of its seeds), their mean, and the paper's row where it has one."""
    rows = [{"target": one.target, "uus_rate": one.uus_rate, "inclusion_rate": one.inclusion_rate} for one in observed]
    frame = pd.DataFrame(rows).astype(dict.fromkeys(_RATES, float)).groupby("target", sort=False).mean()
    frame.loc["mean"] = frame.mean()
    if paper is not None:
        frame.loc[PAPER_ROW] = list(paper)
    return frame.reset_index()


def histogram_table(observed: Sequence[Observed]) -> pd.DataFrame:
    """Share of unconfident images by number of candidates: a row a target (all its seeds) and number."""
    rows = []
    for target in dict.fromkeys(one.target for one in observed):
        counts = np.sum([one.candidates for one in observed if one.target == target], axis=0)
        share = counts / max(counts.sum(), 1)
        for number in range(1, len(counts)):
            row = {"target": target, "candidates": number, "images": int(counts[number]), "share": share[number]}
            rows.append(row)
    return pd.DataFrame(rows)


def paper_numbers(dataset: str) -> tuple[float, float] | None:
    """The paper's UUS and inclusion rate, or None where the dataset is not the paper's."""
    printed = paper_observation()
    if dataset not in printed.index:
        return None
    uus_rate, inclusion_rate = printed.loc[dataset, list(_RATES)]
    return float(uus_rate), float(inclusion_rate)


def draw(histogram: pd.DataFrame) -> Figure:
    """Bars: the mean over the targets. Marks: each target."""
    mean = histogram.groupby("candidates")["share"].mean()
    mean = mean[: mean.to_numpy().nonzero()[0].max(initial=0) + 1]
    figure = Figure(figsize=(style.ONE_COLUMN, 2.0))
    axis = figure.subplots()
    axis.bar(mean.index, 100 * mean, color=style.SKY, width=0.7, label="mean")
    for number, (target, rows) in enumerate(histogram.groupby("target", sort=False)):
        colour, marker = style.colour_and_marker(number)
        shown = rows[rows["candidates"] <= mean.index[-1]]
        axis.plot(shown["candidates"], 100 * shown["share"], marker, color=colour, ms=3.5, mew=0, label=target)
    axis.set_xlabel("candidate classes of an unconfident image")
    axis.set_ylabel("share of images (%)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(visible=False, axis="x")
    axis.legend(loc="best")
    return figure


def main(runs: Sequence[FinishedRun], out: Path, device: str, data_dir: Path | None) -> str:
    """Table and histogram of ``runs``, one a target and seed, of one method."""
    _check_one_experiment(runs)
    observed = [observe(rebuild(run, device, data_dir)) for run in runs]
    settings = runs[0].settings
    paper = paper_numbers(settings.dataset)
    table, histogram = observation_table(observed, paper), histogram_table(observed)
    name = f"observation_{settings.dataset}"
    with style.look():
        written = style.save(draw(histogram), out, name)
    written += [style.save_numbers(table, out, name), style.save_numbers(histogram, out, f"{name}_candidates")]
    seeds = sorted({one.seed for one in observed})
    title = (
        f"{settings.method} on {settings.dataset} after {observed[0].epochs:g} epochs, "
        f"{settings.labels_per_class} labels a class, seed {', '.join(map(str, seeds))}"
    )
    note = f"{PAPER_ROW}: FixMatch, ResNet-18, {EPOCHS} epochs, 10 labels a class, 224 px" if paper else ""
    body = table.to_string(index=False, float_format=lambda value: f"{value:.2f}")
    lines = [title, body, note, *(f"written: {path}" for path in written)]
    return "\n".join(line for line in lines if line)


def _check_one_experiment(runs: Sequence[FinishedRun]) -> None:
    check_comparable(runs, except_for=frozenset({"target domain", "seed"}))
    for other in runs[1:]:
        if other.result["config_hash"] != runs[0].result["config_hash"]:
            raise UserError(f"{runs[0].path} and {other.path} are of two experiments; give runs of one method")
