"""The observation in the first table and figure of the UPCSC paper (https://arxiv.org/abs/2503.13915).

UUS rate: the share of unlabelled source images that the method is not confident about. Inclusion rate: the share of
those whose true class is among their candidate classes, which are the classes with a confidence above 1 / C. The figure
shows the number of candidate classes of these images.
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
from semilearn_ext.analysis.load_model import LoadedModel, load_model
from semilearn_ext.analysis.load_run import FinishedRun, check_comparable, load_run
from semilearn_ext.engine.evaluation import observation_metrics
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.confidence import confidence_mask
from semilearn_ext.report import paper_numbers
from semilearn_ext.report.aggregate import seed_means
from semilearn_ext.report.methods import setting_title
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import Settings, with_values
from semilearn_ext.settings.domains import targets_of
from semilearn_ext.settings.load import COMMAND_LINE

EPOCHS = 3
PAPER = "paper"
_RATES = ("uus_rate", "inclusion_rate")


@dataclass(frozen=True)
class Observed:
    """The observation on the unlabelled source images of one run."""

    target: str
    seed: int
    epochs: float
    uus_rate: float
    inclusion_rate: float | None
    """None if the method is confident about every image."""
    candidates: np.ndarray
    """(C + 1,) number of unconfident images with 0, 1, … C candidate classes."""


def train_runs(settings: Settings) -> list[FinishedRun]:
    """Train one run of three epochs per target. Finished runs are kept, interrupted ones are resumed.

    The runs are in ``<save_dir>_observation``, separate from complete runs in ``save_dir``, which are used for tables.
    """
    if settings.origins.get("epoch") != COMMAND_LINE:
        settings = with_values(settings, epoch=EPOCHS)
    save_dir = Path(settings.save_dir).expanduser().resolve()
    settings = with_values(settings, save_dir=str(save_dir.with_name(f"{save_dir.name}_observation")))
    runs = []
    for target in targets_of(settings):
        run_settings = with_values(settings, target_domain=target)
        training.run(run_settings)
        runs.append(load_run(run_path(run_settings)))
    return runs


def observe(loaded: LoadedModel) -> Observed:
    """Measure the last checkpoint of a run. True labels are used only for this measurement."""
    split, settings = loaded.data.split, loaded.data.settings
    logits, labelled = (
        torch.from_numpy(features(loaded, part).logits).to(loaded.device) for part in (split.unlabelled, split.labelled)
    )
    weight = confidence_mask(loaded.algorithm, logits, labelled)
    if weight is None:
        raise UserError(f"{loaded.run.path}: {settings.algorithm} has no confidence threshold")
    unconfident = weight < 1
    prob = logits.softmax(1)
    labels = loaded.data.labels[split.unlabelled].to(loaded.device)
    measured = observation_metrics(prob, labels, unconfident.float())
    counts = candidate_counts(prob, unconfident)
    uus_rate, inclusion_rate = (measured[f"unlabeled/{name}"] for name in _RATES)
    assert uus_rate is not None
    epochs = loaded.run.result["iterations"] / loaded.data.steps_per_epoch
    return Observed(settings.target_domain, settings.seed, epochs, uus_rate, inclusion_rate, counts)


def candidate_counts(prob: torch.Tensor, unconfident: torch.Tensor) -> np.ndarray:
    """The number of unconfident rows of ``prob`` (N, C) that have 0, 1, … C entries above 1 / C."""
    classes = prob.shape[1]
    numbers = (prob > 1 / classes).sum(1)[unconfident]
    return torch.bincount(numbers.cpu(), minlength=classes + 1).numpy()


def observation_table(observed: Sequence[Observed], paper: Sequence[float] | None) -> pd.DataFrame:
    """One row per target (averaged over seeds), the mean over targets, and the paper's row if there is one.

    The mean over targets uses the seeds for which the rate could be measured on every target.
    """
    runs = pd.DataFrame(
        {"dataset": "", "target": run.target, "seed": run.seed, **{rate: getattr(run, rate) for rate in _RATES}}
        for run in observed
    ).astype(dict.fromkeys(_RATES, float))
    table = runs.groupby("target", sort=False)[list(_RATES)].mean()
    targets = {"": list(table.index)}
    means = [seed_means(runs.dropna(subset=[rate]), targets, ["dataset"], [rate])[rate].mean() for rate in _RATES]
    table.loc["mean"] = means
    if paper is not None:
        table.loc[PAPER] = list(paper)
    return table.reset_index()


def histogram_table(observed: Sequence[Observed]) -> pd.DataFrame:
    """Share of unconfident images per number of candidate classes: one row per target (over its seeds) and number."""
    rows = []
    for target in dict.fromkeys(run.target for run in observed):
        counts = np.sum([run.candidates for run in observed if run.target == target], axis=0)
        share = counts / max(counts.sum(), 1)
        for number in range(1, len(counts)):
            row = {"target": target, "candidates": number, "images": int(counts[number]), "share": share[number]}
            rows.append(row)
    return pd.DataFrame(rows)


def paper_rates(dataset: str) -> list[float] | None:
    """The paper's UUS rate and inclusion rate, or None for a dataset that is not in the paper."""
    printed = paper_numbers.observation()
    return [float(printed.loc[dataset, rate]) for rate in _RATES] if dataset in printed.index else None


def draw(histogram: pd.DataFrame) -> Figure:
    """Bars: the mean over targets. Markers: the targets."""
    mean = histogram.groupby("candidates")["share"].mean()
    mean = mean[: mean.to_numpy().nonzero()[0].max(initial=0) + 1]
    figure = Figure(figsize=(style.ONE_COLUMN, 2.6))
    axis = figure.subplots()
    axis.bar(mean.index, 100 * mean, color=style.SKY, width=0.7, label="mean over targets")
    for number, (target, rows) in enumerate(histogram.groupby("target", sort=False)):
        colour, marker = style.colour_and_marker(number)
        drawn = rows[rows["candidates"] <= mean.index[-1]]
        label = f"target: {target}"
        axis.plot(drawn["candidates"], 100 * drawn["share"], marker, color=colour, ms=3.5, mew=0, label=label)
    axis.set_xlabel("number of candidate classes")
    axis.set_ylabel("unconfident images (%)")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.grid(visible=False, axis="x")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def main(runs: Sequence[FinishedRun], out: Path, device: str, data_dir: Path | None) -> str:
    """Table and histogram of ``runs`` of one method, one run per target and seed."""
    _check_one_experiment(runs)
    observed = [observe(load_model(run, device, data_dir)) for run in runs]
    settings = runs[0].settings
    paper = paper_rates(settings.dataset)
    table, histogram = observation_table(observed, paper), histogram_table(observed)
    name = f"observation_{settings.dataset}"
    with style.look():
        written = style.save(draw(histogram), out, name)
    written += [style.save_numbers(table, out, name), style.save_numbers(histogram, out, f"{name}_candidates")]
    seeds = sorted({run.seed for run in observed})
    title = (
        f"{runs[0].method.title} on {setting_title(settings.dataset, settings.labels_per_class)}, "
        f"after {observed[0].epochs:g} epochs, seed {', '.join(map(str, seeds))}"
    )
    note = f"{PAPER}: FixMatch, ResNet-18, {EPOCHS} epochs, 10 labels per class, 224 px" if paper else ""
    body = table.to_string(index=False, float_format=lambda value: f"{value:.2f}")
    lines = [title, body, note, *style.wrote(written)]
    return "\n".join(line for line in lines if line)


def _check_one_experiment(runs: Sequence[FinishedRun]) -> None:
    check_comparable(runs, except_for=frozenset({"target domain", "seed"}))
    for other in runs[1:]:
        if other.result["config_hash"] != runs[0].result["config_hash"]:
            raise UserError(f"{runs[0].path} and {other.path} belong to different experiments; pass runs of one method")
