"""t-SNE of the features of labelled source, unlabelled source and target images, one embedding per method.

One row per method, with three columns coloured by class and a fourth with all images coloured by set. The numbers below
the panels are computed on the features, because distances in an embedding are not meaningful: the silhouette of the
classes (-1 to 1; Rousseeuw, 1987), and the squared maximum mean discrepancy between source and target (Gretton et al.,
2012; unbiased, with a Gaussian kernel whose squared width is the median squared distance), which is about 0 for two
samples of the same distribution and less than 2 for any scale of the features. The error of a classifier (proxy
A-distance) is not used, because with this many dimensions a classifier can distinguish any two domains.
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
from semilearn_ext.analysis.load_model import LoadedModel, load_model
from semilearn_ext.analysis.load_run import FinishedRun, check_comparable, comparison_title, titles_of
from semilearn_ext.report.layout import MINUS

SETS = {"labelled source": style.RED, "unlabelled source": style.BLUE, "target": style.GREY}
COMPONENTS = 50
PERPLEXITY = 30.0
MAX_CLASSES_IN_LEGEND = 24
LEGEND_LETTERS = 80


@dataclass(frozen=True)
class Options:
    """The options of ``analyse tsne``."""

    limit: int
    """Maximum number of images per set. From a larger set, equally many images of each class are used."""
    seed: int = 0


@dataclass(frozen=True)
class Embedding:
    """The N images of one run, in the order of the sets."""

    title: str
    classes: tuple[str, ...]
    images: list[str]
    set_numbers: np.ndarray
    """(N,)."""
    labels: np.ndarray
    """(N,)."""
    points: np.ndarray
    """(N, 2)."""
    silhouettes: list[float]
    """One per set."""
    gap: float
    """Squared maximum mean discrepancy between source and target."""


def evenly_by_class(labels: np.ndarray, limit: int, seed: int) -> np.ndarray:
    """Positions of at most ``limit`` images: equally many of each class, or all images of a small class."""
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
    """Embed features (N, D) as (N, 2): PCA to at most 50 components, then t-SNE, in one thread to be reproducible."""
    components = min(COMPONENTS, *feat.shape)
    reduced = PCA(components, svd_solver="full").fit_transform(feat)
    perplexity = min(PERPLEXITY, (len(feat) - 1) / 3)
    with threadpool_limits(1):
        points: np.ndarray = TSNE(init="pca", perplexity=perplexity, random_state=seed).fit_transform(reduced)
    return points


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


def measure(loaded: LoadedModel, title: str, options: Options) -> Embedding:
    data = loaded.data
    chosen = []
    for part in (data.split.labelled, data.split.unlabelled, data.split.target):
        array = np.asarray(part)
        chosen.append(array[evenly_by_class(data.labels.numpy()[array], options.limit, options.seed)])
    positions = np.concatenate(chosen)
    feat = features(loaded, positions.tolist()).feat
    set_numbers = np.repeat(np.arange(3), [len(array) for array in chosen])
    labels = data.labels.numpy()[positions]
    return Embedding(
        title=title,
        classes=data.classes,
        images=[data.items[position].name for position in positions],
        set_numbers=set_numbers,
        labels=labels,
        points=embed(feat, options.seed),
        silhouettes=[float(silhouette_score(feat[set_numbers == k], labels[set_numbers == k])) for k in range(3)],
        gap=domain_gap(feat[set_numbers < 2], feat[set_numbers == 2]),
    )


def draw(embeddings: Sequence[Embedding], compared: str) -> Figure:
    columns = [*SETS, "all"]
    figure = Figure(figsize=(style.TWO_COLUMNS, 1.8 * len(embeddings) + 0.9))
    figure.suptitle(compared, fontsize=style.SMALL)
    axes = figure.subplots(len(embeddings), len(columns), squeeze=False)
    for axis, title in zip(axes[0], columns, strict=True):
        axis.set_title(title)
    for row, embedding in zip(axes, embeddings, strict=True):
        row[0].set_ylabel(embedding.title)
        for number, (axis, silhouette) in enumerate(zip(row, embedding.silhouettes, strict=False)):
            _scatter_classes(axis, embedding, embedding.set_numbers == number)
            axis.set_xlabel(f"silhouette {_rounded(silhouette, 2)}")
        for number, colour in reversed(list(enumerate(SETS.values()))):
            points = embedding.points[embedding.set_numbers == number]
            row[-1].scatter(*points.T, s=3, color=colour, linewidths=0, rasterized=True)
        row[-1].set_xlabel(f"MMD² {_rounded(embedding.gap, 3)}")
        _share_limits(row, embedding.points)
    _add_legends(figure, axes[0][0], embeddings[0].classes)
    return figure


def _rounded(number: float, decimals: int) -> str:
    text = f"{round(number, decimals) + 0.0:.{decimals}f}"  # adding zero removes the sign of -0.0
    return text.replace("-", MINUS)


def _share_limits(row: Sequence[Axes], points: np.ndarray) -> None:
    """Show the same part of the embedding in every panel of a row."""
    low, high = points.min(0), points.max(0)
    margin = 0.04 * (high - low)
    for axis in row:
        axis.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
        axis.set(xticks=[], yticks=[])
        axis.spines[["top", "right"]].set_visible(True)


def _scatter_classes(axis: Axes, embedding: Embedding, in_set: np.ndarray) -> None:
    for label, name in enumerate(embedding.classes):
        x, y = embedding.points[in_set & (embedding.labels == label)].T
        colour, marker = style.colour_and_marker(label)
        axis.scatter(x, y, s=5, color=colour, marker=marker, linewidths=0, label=name, rasterized=True)


def _add_legends(figure: Figure, axis: Axes, classes: Sequence[str]) -> None:
    """Add legends below the panels: the classes, the meaning of the numbers, and the three sets."""
    handles, names = axis.get_legend_handles_labels()
    title = "silhouettes (of the classes) and MMD² are computed on the features, not on the embedding"
    if len(classes) > MAX_CLASSES_IN_LEGEND:
        handles, names, title = [], [], f"{title};\nthe CSV contains the names of the {len(classes)} classes"
    columns = max(1, LEGEND_LETTERS // (max(map(len, classes)) + 3))
    look = {"markerscale": 2, "handletextpad": 0.1, "columnspacing": 0.8, "title_fontsize": 7, "alignment": "left"}
    figure.legend(handles, names, title=title, loc="outside lower left", ncols=columns, **look)
    dots = [axis.scatter([], [], s=5, color=colour, linewidths=0) for colour in SETS.values()]
    figure.legend(dots, list(SETS), loc="outside lower right", **look)


def point_table(embeddings: Sequence[Embedding]) -> pd.DataFrame:
    """One row per method and image."""
    sets = np.array(list(SETS))
    frames = [
        pd.DataFrame(
            {
                "method": embedding.title,
                "set": sets[embedding.set_numbers],
                "class": np.array(embedding.classes)[embedding.labels],
                "image": embedding.images,
                "x": embedding.points[:, 0],
                "y": embedding.points[:, 1],
            }
        )
        for embedding in embeddings
    ]
    return pd.concat(frames, ignore_index=True)


def number_table(embeddings: Sequence[Embedding]) -> pd.DataFrame:
    """One row per method: the numbers below its panels."""
    return pd.DataFrame(
        {"method": embedding.title, **dict(zip(SETS, embedding.silhouettes, strict=True)), "mmd2": embedding.gap}
        for embedding in embeddings
    )


def main(runs: Sequence[FinishedRun], out: Path, options: Options, device: str, data_dir: Path | None) -> str:
    check_comparable(runs)
    titled = zip(runs, titles_of(runs), strict=True)
    embeddings = [measure(load_model(run, device, data_dir), title, options) for run, title in titled]
    settings = runs[0].settings
    stem = f"tsne_{settings.dataset}_{settings.target_domain}"
    with style.look():
        written = style.save(draw(embeddings, comparison_title(runs)), out, stem)
    numbers = number_table(embeddings)
    written.append(style.save_numbers(point_table(embeddings), out, stem))
    written.append(style.save_numbers(numbers, out, f"{stem}_numbers"))
    heading = "silhouette of the classes per set, and squared MMD between source and target, computed on the features"
    body = numbers.to_string(index=False, float_format=lambda value: f"{value:.3f}")
    return "\n".join([comparison_title(runs), heading, body, *style.wrote(written)])
