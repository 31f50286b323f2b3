"""Plot the loss on source images around the final weights, along the first two eigenvectors of its Hessian.

The loss is the mean cross-entropy with true labels of labelled and unlabelled source images in the test view. Batch
norm uses its running statistics. The eigenvectors belong to the two largest eigenvalues and have unit norm over all
weights that the logits depend on, so a step has the same length for every method and the surfaces can be compared. The
eigenvectors are computed in float64 (in float32 on MPS, which has no float64, or with ``--float32``), the grid in
float32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor
from tqdm import tqdm

from semilearn_ext.analysis import style
from semilearn_ext.analysis.hessian import Eigenpairs, Loss, largest_eigenpairs
from semilearn_ext.analysis.load_model import LoadedModel, load_model
from semilearn_ext.analysis.load_run import FinishedRun, check_comparable, comparison_title, titles_of
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.device import to_device

TOLERANCE = 1e-3
RISE = 5.0
_BATCH = 64


@dataclass(frozen=True)
class Options:
    """The options of ``analyse landscape``."""

    images: int
    """Number of source images for the loss; 0 for all."""
    points: int
    """Grid points along each direction; odd, so that the middle point is the trained network."""
    span: float
    """Length of the longest step along each direction, to each side; 0 for :func:`automatic_span`."""
    float32: bool = False
    """Compute the eigenvectors in single precision, about four times as fast on a CPU."""


@dataclass(frozen=True)
class Landscape:
    """The loss of one run around its weights."""

    name: str
    steps: np.ndarray
    """(points,) along both directions."""
    loss: np.ndarray
    """(points, points): row i is steps[i] along the first direction, column j steps[j] along the second."""
    eigen: Eigenpairs
    images: int


def source_positions(loaded: LoadedModel, limit: int) -> list[int]:
    """Positions of all labelled and unlabelled source images, or of ``limit`` of them if it is not 0.

    Images are taken at regular intervals. A split lists its images by domain and class, so all domains and classes are
    represented in proportion; otherwise the loss on few images would depend strongly on the choice.
    """
    split = loaded.data.split
    positions = [*split.labelled, *split.unlabelled]
    if not limit or limit >= len(positions):
        return positions
    return [positions[(2 * k + 1) * len(positions) // (2 * limit)] for k in range(limit)]


def curvature(loaded: LoadedModel, name: str, options: Options) -> Eigenpairs:
    """The two largest eigenvalues of the Hessian of the loss, with their eigenvectors."""
    single = options.float32 or loaded.device.type == "mps"
    loss = source_loss(loaded, options, torch.float32 if single else torch.float64)
    bar = tqdm(desc=f"{name}: Hessian products", unit="", disable=None, leave=False)

    def times(vector: np.ndarray) -> np.ndarray:
        bar.update()
        return loss.hessian_times(vector)

    with bar:
        return largest_eigenpairs(times, loss.size, 2, tolerance=TOLERANCE)


def source_loss(loaded: LoadedModel, options: Options, dtype: torch.dtype) -> Loss:
    images = PlainImages(loaded.data, source_positions(loaded, options.images), _BATCH, view="test")

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for part, x in images.share():
            on_device = to_device(x, loaded.device, loaded.data.settings.channels_last)
            yield on_device, images.labels[part].to(loaded.device)

    return Loss(loaded.net, batches, dtype)


def automatic_span(eigen: Sequence[Eigenpairs]) -> float:
    """The step that raises the loss of the sharpest method by ``RISE`` in a quadratic model, rounded to one digit."""
    span = math.sqrt(2 * RISE / max(pairs.values[0] for pairs in eigen))
    digit = 10 ** math.floor(math.log10(span))
    return round(span / digit) * digit


def measure(loaded: LoadedModel, name: str, eigen: Eigenpairs, span: float, options: Options) -> Landscape:
    """Compute the loss on the grid spanned by the eigenvectors."""
    loss = source_loss(loaded, options, torch.float32)
    steps = np.linspace(-span, span, options.points)
    return Landscape(name, steps, _grid(loss, eigen, steps, name), eigen, loss.count)


def _grid(loss: Loss, eigen: Eigenpairs, steps: np.ndarray, name: str) -> np.ndarray:
    first, second = (loss.split(vector) for vector in eigen.vectors)
    values = np.empty((len(steps), len(steps)))
    with tqdm(total=values.size, desc=f"{name}: grid", unit="pt", disable=None, leave=False) as bar:
        for row, along in enumerate(steps):
            for column, across in enumerate(steps):
                values[row, column] = loss.at((along, first), (across, second))
                bar.update()
    return values


def draw(landscapes: Sequence[Landscape], compared: str) -> Figure:
    """One column per method: the surface, and its contours below, all with the same scale."""
    columns = len(landscapes)
    levels = MaxNLocator(14).tick_values(
        *(pick([pick(landscape.loss) for landscape in landscapes]) for pick in (np.min, np.max))
    )
    scale = Normalize(levels[0], levels[-1])
    figure = Figure(figsize=(style.TWO_COLUMNS if columns > 1 else style.ONE_COLUMN, 4.8))
    figure.suptitle(compared if columns > 1 else compared.replace("; ", "\n"), fontsize=style.SMALL)
    grid = figure.add_gridspec(2, columns, height_ratios=(1.2, 1))
    flat = []
    for column, landscape in enumerate(landscapes):
        first, second = np.meshgrid(landscape.steps, landscape.steps, indexing="ij")
        ticks = (landscape.steps[0], 0, landscape.steps[-1])
        surface = figure.add_subplot(grid[0, column], projection="3d", title=landscape.name)
        surface.plot_surface(
            first, second, landscape.loss, cmap=style.SURFACE, norm=scale, rcount=99, ccount=99, linewidth=0
        )
        surface.set_zlim(scale.vmin, scale.vmax)
        surface.set_box_aspect((1, 1, 0.8), zoom=0.95)
        surface.tick_params(pad=-2)
        contours = figure.add_subplot(grid[1, column], aspect="equal")
        filled = contours.contourf(first, second, landscape.loss, levels, cmap=style.SURFACE, norm=scale)
        contours.contour(first, second, landscape.loss, levels, colors="white", linewidths=0.3)
        contours.plot(0, 0, "+", color="white", ms=5)
        contours.set_title(
            ", ".join(rf"$\lambda_{k}$ = {_format(v)}" for k, v in enumerate(landscape.eigen.values, start=1)),
            parse_math=True,
        )
        contours.grid(visible=False)
        for axis in (surface, contours):
            axis.set(xticks=ticks, yticks=ticks)
            axis.set_xlabel(r"$\epsilon_1$", parse_math=True)
            axis.set_ylabel(r"$\epsilon_2$", parse_math=True)
        for axis in (surface.xaxis, surface.yaxis):
            axis.labelpad = -7
        flat.append(contours)
    figure.colorbar(filled, ax=flat, label="loss on source images")
    return figure


def _format(value: float) -> str:
    return f"{value:#.3g}" if value < 100 else f"{value:.0f}"


def grid_table(landscapes: Sequence[Landscape]) -> pd.DataFrame:
    """One row per method and grid point."""
    frames = []
    for landscape in landscapes:
        first, second = np.meshgrid(landscape.steps, landscape.steps, indexing="ij")
        columns = {"epsilon1": first.ravel(), "epsilon2": second.ravel(), "loss": landscape.loss.ravel()}
        frames.append(pd.DataFrame({"method": landscape.name, **columns}))
    return pd.concat(frames, ignore_index=True)


def eigenvalue_table(landscapes: Sequence[Landscape]) -> pd.DataFrame:
    rows = []
    for landscape in landscapes:
        middle = len(landscape.steps) // 2
        rows.append(
            {
                "method": landscape.name,
                "loss": landscape.loss[middle, middle],
                **{f"lambda{k}": value for k, value in enumerate(landscape.eigen.values, start=1)},
                **{f"residual{k}": value for k, value in enumerate(landscape.eigen.residuals, start=1)},
                "images": landscape.images,
                "products": landscape.eigen.products,
            }
        )
    return pd.DataFrame(rows)


def main(runs: Sequence[FinishedRun], out: Path, options: Options, device: str, data_dir: Path | None) -> str:
    check_comparable(runs)
    named = [(load_model(run, device, data_dir), name) for run, name in zip(runs, titles_of(runs), strict=True)]
    eigen = [curvature(loaded, name, options) for loaded, name in named]
    span = options.span or automatic_span(eigen)
    landscapes = [
        measure(loaded, name, pairs, span, options) for (loaded, name), pairs in zip(named, eigen, strict=True)
    ]
    settings = runs[0].settings
    stem = f"landscape_{settings.dataset}_{settings.target_domain}"
    with style.look():
        written = style.save(draw(landscapes, comparison_title(runs)), out, stem)
    table = eigenvalue_table(landscapes)
    written.append(style.save_numbers(grid_table(landscapes), out, stem))
    written.append(style.save_numbers(table, out, f"{stem}_eigenvalues"))
    title = f"loss on {landscapes[0].images} source images, and the largest eigenvalues of its Hessian"
    return "\n".join([comparison_title(runs), title, table.to_string(index=False), *style.wrote(written)])
