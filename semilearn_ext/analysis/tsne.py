"""t-SNE of the features of labelled source, unlabelled source and target images, one embedding a method.

A row a method; three columns coloured by class, and a fourth with all images coloured by set. The numbers under the
panels are computed on the features themselves, for distances in an embedding mean little: the silhouette of the classes
(-1 to 1; Rousseeuw, 1987), and the squared maximum mean discrepancy between source and target (Gretton et al., 2012;
unbiased, Gaussian kernel, its squared width the median squared distance): about 0 for two samples of one distribution,
and less than 2 whatever the scale of the features. A classifier's error (the proxy A-distance) would not do: in so many
dimensions it tells any two domains apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import pairwise_distances, silhouette_score
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from semilearn_ext.analysis import style
from semilearn_ext.analysis.features import features
from semilearn_ext.analysis.finished import FinishedRun, check_comparable, names_of
from semilearn_ext.analysis.rebuild import Rebuilt, rebuild

SETS = {"labelled source": style.RED, "unlabelled source": style.BLUE, "target": style.GREY}
COMPONENTS = 50
PERPLEXITY = 30.0
CLASSES_NAMED = 24
LEGEND_LETTERS = 80


@dataclass(frozen=True)
class Options:
    """What ``analyse tsne`` can be told."""

    limit: int
    """Most images of a set; more are thinned out evenly by class."""
    seed: int = 0


@dataclass(frozen=True)
class Embedded:
    """One run's images: N of them, in the order of the sets."""

    name: str
    classes: tuple[str, ...]
    image: list[str]
    part: np.ndarray
    """(N,) number of the set."""
    label: np.ndarray
    """(N,)."""
    place: np.ndarray
    """(N, 2)."""
    silhouettes: list[float]
    """By set."""
    gap: float


def evenly_by_class(labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Positions of at most ``limit`` images: as many of each class, or all that there are of a small one."""
    if len(labels) <= limit:
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    groups = sorted((rng.permutation(np.flatnonzero(labels == k)) for k in np.unique(labels)), key=len)
    chosen: list[np.ndarray] = []
    for number, group in enumerate(groups):
        share = (limit - sum(map(len, chosen))) // (len(groups) - number)
        chosen.append(group[:share])
    return np.sort(np.concatenate(chosen))


def embed(feat: np.ndarray, seed: int) -> np.ndarray:
    """(N, D) -> (N, 2): PCA to at most 50 components, then t-SNE. One thread: the same every time."""
    components = min(COMPONENTS, *feat.shape)
    reduced = PCA(components, svd_solver="full").fit_transform(feat)
    perplexity = min(PERPLEXITY, (len(feat) - 1) / 3)
    with threadpool_limits(1):
        place: np.ndarray = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(reduced)
    return place


def domain_gap(source: np.ndarray, target: np.ndarray) -> float:
    """Squared maximum mean discrepancy between two sets of features (N, D) and (M, D)."""
    feat = np.concatenate([source, target]).astype(np.float64)
    squared = pairwise_distances(feat, metric="sqeuclidean")
    kernel = np.exp(-squared / np.median(squared[np.triu_indices(len(feat), 1)]))
    np.fill_diagonal(kernel, 0)
    count, others = len(source), len(target)
    within_source = kernel[:count, :count].sum() / (count * (count - 1))
    within_target = kernel[count:, count:].sum() / (others * (others - 1))
    return float(within_source + within_target - 2 * kernel[:count, count:].mean())


def measure(rebuilt: Rebuilt, name: str, options: Options) -> Embedded:
    data = rebuilt.data
    chosen = []
    for positions in (data.split.labelled, data.split.unlabelled, data.split.target):
        array = np.asarray(positions)
        chosen.append(array[evenly_by_class(data.labels.numpy()[array], options.limit, options.seed)])
    at = np.concatenate(chosen)
    feat = features(rebuilt, at.tolist()).feat
    part, label = np.repeat(np.arange(3), [len(one) for one in chosen]), data.labels.numpy()[at]
    return Embedded(
        name=name,
        classes=data.classes,
        image=[data.items[position].name for position in at],
        part=part,
        label=label,
        place=embed(feat, options.seed),
        silhouettes=[float(silhouette_score(feat[part == k], label[part == k])) for k in range(3)],
        gap=domain_gap(feat[part < 2], feat[part == 2]),
    )


def draw(embedded: Sequence[Embedded]) -> Figure:
    classes = embedded[0].classes
    columns = [*SETS, "all"]
    figure = Figure(figsize=(style.TWO_COLUMNS, 1.8 * len(embedded) + 0.7))
    axes = figure.subplots(len(embedded), len(columns), squeeze=False)
    for axis, title in zip(axes[0], columns, strict=True):
        axis.set_title(title)
    for row, one in zip(axes, embedded, strict=True):
        row[0].set_ylabel(one.name)
        for number, (axis, silhouette) in enumerate(zip(row, one.silhouettes, strict=False)):
            _scatter_classes(axis, one, one.part == number)
            axis.set_xlabel(f"silhouette {_two_places(silhouette)}")
        for number, colour in reversed(list(enumerate(SETS.values()))):
            row[-1].scatter(*one.place[one.part == number].T, s=3, color=colour, linewidths=0, rasterized=True)
        row[-1].set_xlabel(f"MMD² {_two_places(one.gap)}")
        _frame(row, one.place)
    _legends(figure, axes[0][0], classes)
    return figure


def _two_places(number: float) -> str:
    return f"{round(number, 2) + 0.0:.2f}"


def _frame(row: Sequence[Axes], place: np.ndarray) -> None:
    """The same square of the embedding in every panel of a row."""
    low, high = place.min(0), place.max(0)
    margin = 0.04 * (high - low)
    for axis in row:
        axis.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
        axis.set(xticks=[], yticks=[])
        axis.spines[["top", "right"]].set_visible(True)


def _scatter_classes(axis: Axes, one: Embedded, chosen: np.ndarray) -> None:
    for label, name in enumerate(one.classes):
        here = one.place[chosen & (one.label == label)]
        colour, marker = style.colour_and_marker(label)
        axis.scatter(
            here[:, 0], here[:, 1], s=5, color=colour, marker=marker, linewidths=0, label=name, rasterized=True
        )


def _legends(figure: Figure, axis: Axes, classes: Sequence[str]) -> None:
    """Below the panels: the classes, what the numbers are, and the three sets."""
    marks, names = axis.get_legend_handles_labels()
    title = "silhouettes (of the classes) and MMD² are those of the features, not of the embedding"
    if len(classes) > CLASSES_NAMED:
        marks, names, title = [], [], f"{title};\nthe {len(classes)} classes are named in the CSV"
    in_a_row = max(1, LEGEND_LETTERS // (max(map(len, classes)) + 3))
    look = {"markerscale": 2, "handletextpad": 0.1, "columnspacing": 0.8, "title_fontsize": 7, "alignment": "left"}
    figure.legend(marks, names, title=title, loc="outside lower left", ncols=in_a_row, **look)
    dots = [axis.scatter([], [], s=5, color=colour, linewidths=0) for colour in SETS.values()]
    figure.legend(dots, list(SETS), loc="outside lower right", **look)


def point_table(embedded: Sequence[Embedded]) -> pd.DataFrame:
    """A row a method and image."""
    sets = np.array(list(SETS))
    frames = [
        pd.DataFrame(
            {
                "method": one.name,
                "set": sets[one.part],
                "class": np.array(one.classes)[one.label],
                "image": one.image,
                "x": one.place[:, 0],
                "y": one.place[:, 1],
            }
        )
        for one in embedded
    ]
    return pd.concat(frames, ignore_index=True)


def number_table(embedded: Sequence[Embedded]) -> pd.DataFrame:
    """A row a method: the numbers under its panels."""
    rows = [{"method": one.name, **dict(zip(SETS, one.silhouettes, strict=True)), "mmd2": one.gap} for one in embedded]
    return pd.DataFrame(rows)


def main(runs: Sequence[FinishedRun], out: Path, options: Options, device: str, data_dir: Path | None) -> str:
    check_comparable(runs)
    named = zip(runs, names_of(runs), strict=True)
    embedded = [measure(rebuild(run, device, data_dir), name, options) for run, name in named]
    settings = runs[0].settings
    stem = f"tsne_{settings.dataset}_{settings.target_domain}"
    with style.look():
        written = style.save(draw(embedded), out, stem)
    numbers = number_table(embedded)
    written.append(style.save_numbers(point_table(embedded), out, stem))
    written.append(style.save_numbers(numbers, out, f"{stem}_numbers"))
    title = "silhouette of the classes by set, and squared MMD between source and target, on the features"
    body = numbers.to_string(index=False, float_format=lambda value: f"{value:.3f}")
    return "\n".join([title, body, *(f"written: {path}" for path in written)])
