"""The loss on source images around the weights that training ended with, along the Hessian's first two eigenvectors.

The loss is the mean cross-entropy, with true labels, of plain labelled and unlabelled source images. Batch norm keeps
its running statistics. The eigenvectors are those of the two largest eigenvalues, of unit length over all weights that
the logits depend on; a step along them has the same length for every method, so the surfaces can be compared. They are
computed in float64 (float32 on MPS, which has no other, or where speed matters more), the grid in float32.
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
from semilearn_ext.analysis.finished import FinishedRun, check_comparable, names_of
from semilearn_ext.analysis.hessian import Eigenpairs, Loss, largest_eigenpairs
from semilearn_ext.analysis.rebuild import Rebuilt, rebuild
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.device import to_device

TOLERANCE = 1e-3
RISE = 5.0
_BATCH = 64


@dataclass(frozen=True)
class Options:
    """What ``analyse landscape`` can be told."""

    images: int
    """Source images the loss is measured on; 0: all."""
    points: int
    """Grid points along each direction, an odd number, so that the middle one is the trained network."""
    span: float
    """Length of the longest step along each direction, to either side; 0: see ``automatic_span``."""
    float32: bool = False
    """Compute the eigenvectors in single precision: about four times as fast on a CPU."""


@dataclass(frozen=True)
class Landscape:
    """One run's loss around its weights."""

    name: str
    steps: np.ndarray
    """(points,) along both directions."""
    loss: np.ndarray
    """(points, points): row i is steps[i] along the first direction, column j steps[j] along the second."""
    eigen: Eigenpairs
    images: int


def source_positions(rebuilt: Rebuilt, limit: int) -> list[int]:
    """Labelled and unlabelled source images: all (0), or ``limit`` of them.

    Every so-many-th image is taken. A split lists its images by domain and class, so that each has its share: the loss
    of so few images would else depend much on which they are.
    """
    split = rebuilt.data.split
    positions = [*split.labelled, *split.unlabelled]
    if not limit or limit >= len(positions):
        return positions
    return [positions[(2 * k + 1) * len(positions) // (2 * limit)] for k in range(limit)]


def curvature(rebuilt: Rebuilt, name: str, options: Options) -> Eigenpairs:
    """The two largest eigenvalues of the loss's Hessian, with their eigenvectors."""
    single = options.float32 or rebuilt.device.type == "mps"
    loss = source_loss(rebuilt, options, torch.float32 if single else torch.float64)
    bar = tqdm(desc=f"{name}: Hessian products", unit="", disable=None, leave=False)

    def times(vector: np.ndarray) -> np.ndarray:
        bar.update()
        return loss.hessian_times(vector)

    with bar:
        return largest_eigenpairs(times, loss.size, 2, tolerance=TOLERANCE)


def source_loss(rebuilt: Rebuilt, options: Options, dtype: torch.dtype) -> Loss:
    images = PlainImages(rebuilt.data, source_positions(rebuilt, options.images), _BATCH)

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for part, x in images.share(rank=0, world=1):
            on_device = to_device(x, rebuilt.device, rebuilt.data.settings.channels_last)
            yield on_device, images.labels[part].to(rebuilt.device)

    return Loss(rebuilt.net, batches, dtype)


def automatic_span(eigen: Sequence[Eigenpairs]) -> float:
    """Where the loss of the sharpest method would have risen by RISE if it were a parabola, to one digit."""
    span = math.sqrt(2 * RISE / max(one.values[0] for one in eigen))
    digit = 10 ** math.floor(math.log10(span))
    return round(span / digit) * digit


def measure(rebuilt: Rebuilt, name: str, eigen: Eigenpairs, span: float, options: Options) -> Landscape:
    """The loss on the grid that the eigenvectors span."""
    loss = source_loss(rebuilt, options, torch.float32)
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


def draw(landscapes: Sequence[Landscape]) -> Figure:
    """A column a method: the surface, and its contours below. One scale for all."""
    columns = len(landscapes)
    levels = MaxNLocator(14).tick_values(*(pick([pick(one.loss) for one in landscapes]) for pick in (np.min, np.max)))
    scale = Normalize(levels[0], levels[-1])
    figure = Figure(figsize=(style.TWO_COLUMNS if columns > 1 else style.ONE_COLUMN, 4.8))
    grid = figure.add_gridspec(2, columns, height_ratios=(1.2, 1))
    flat = []
    for column, one in enumerate(landscapes):
        first, second = np.meshgrid(one.steps, one.steps, indexing="ij")
        ticks = (one.steps[0], 0, one.steps[-1])
        surface = figure.add_subplot(grid[0, column], projection="3d", title=one.name)
        surface.plot_surface(first, second, one.loss, cmap=style.SURFACE, norm=scale, rcount=99, ccount=99, linewidth=0)
        surface.set_zlim(scale.vmin, scale.vmax)
        surface.set_box_aspect((1, 1, 0.8), zoom=0.95)
        surface.tick_params(pad=-2)
        contours = figure.add_subplot(grid[1, column], aspect="equal")
        filled = contours.contourf(first, second, one.loss, levels, cmap=style.SURFACE, norm=scale)
        contours.contour(first, second, one.loss, levels, colors="white", linewidths=0.3)
        contours.plot(0, 0, "+", color="white", ms=5)
        contours.set_title(", ".join(rf"$\lambda_{k}$ = {_shown(v)}" for k, v in enumerate(one.eigen.values, start=1)))
        contours.grid(visible=False)
        for axis in (surface, contours):
            axis.set(xlabel=r"$\epsilon_1$", ylabel=r"$\epsilon_2$", xticks=ticks, yticks=ticks)
        for axis in (surface.xaxis, surface.yaxis):
            axis.labelpad = -7
        flat.append(contours)
    figure.colorbar(filled, ax=flat, label="source loss")
    return figure


def _shown(value: float) -> str:
    return f"{value:#.3g}" if value < 100 else f"{value:.0f}"


def grid_table(landscapes: Sequence[Landscape]) -> pd.DataFrame:
    """A row a method and grid point."""
    frames = []
    for one in landscapes:
        first, second = np.meshgrid(one.steps, one.steps, indexing="ij")
        columns = {"epsilon1": first.ravel(), "epsilon2": second.ravel(), "loss": one.loss.ravel()}
        frames.append(pd.DataFrame({"method": one.name, **columns}))
    return pd.concat(frames, ignore_index=True)


def eigenvalue_table(landscapes: Sequence[Landscape]) -> pd.DataFrame:
    rows = []
    for one in landscapes:
        middle = len(one.steps) // 2
        rows.append(
            {
                "method": one.name,
                "loss": one.loss[middle, middle],
                **{f"lambda{k}": value for k, value in enumerate(one.eigen.values, start=1)},
                **{f"residual{k}": value for k, value in enumerate(one.eigen.residuals, start=1)},
                "images": one.images,
                "products": one.eigen.products,
            }
        )
    return pd.DataFrame(rows)


def main(runs: Sequence[FinishedRun], out: Path, options: Options, device: str, data_dir: Path | None) -> str:
    check_comparable(runs)
    named = [(rebuild(run, device, data_dir), name) for run, name in zip(runs, names_of(runs), strict=True)]
    eigen = [curvature(rebuilt, name, options) for rebuilt, name in named]
    span = options.span or automatic_span(eigen)
    landscapes = [measure(*one, pairs, span, options) for one, pairs in zip(named, eigen, strict=True)]
    settings = runs[0].settings
    stem = f"landscape_{settings.dataset}_{settings.target_domain}"
    with style.look():
        written = style.save(draw(landscapes), out, stem)
    table = eigenvalue_table(landscapes)
    written.append(style.save_numbers(grid_table(landscapes), out, stem))
    written.append(style.save_numbers(table, out, f"{stem}_eigenvalues"))
    title = f"source loss on {landscapes[0].images} images and the Hessian's largest eigenvalues"
    return "\n".join([title, table.to_string(index=False), *(f"written: {path}" for path in written)])
