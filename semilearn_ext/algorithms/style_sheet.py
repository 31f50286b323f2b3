"""Draw examples of StyleMatch's style view: content, style and result, for every pair of domains."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from torch import Tensor

from semilearn_ext.algorithms.style_view import StyleView
from semilearn_ext.data import views
from semilearn_ext.data.contact_sheet import save
from semilearn_ext.data.experiment import load_images, view_spec
from semilearn_ext.engine.device import fast_precision
from semilearn_ext.nets.adain import load_style_transfer
from semilearn_ext.settings import Settings
from semilearn_ext.settings.domains import domains_of

SIDE_INCHES = 1.5


def draw(settings: Settings, alpha: float, out: Path) -> None:
    """Draw a grid: the image of a row (content) in the style of the image of a column, one image per domain."""
    spec = view_spec(settings)
    style = StyleView(load_style_transfer(settings.adain_dir), spec, alpha, fast_precision(torch.device("cpu")))
    domains = list(domains_of(settings))
    loaded = load_images(settings)
    chosen = [
        next(p for p, item in enumerate(loaded.items) if (item.domain, item.label) == (domain, k % len(loaded.classes)))
        for k, domain in enumerate(domains)
    ]
    plain = views.plain(loaded.store[torch.tensor(chosen)], spec)
    count = len(domains)
    encodings = style.encode(plain).repeat_interleave(count, dim=0)
    partners = torch.arange(count).repeat(count) * count  # one row of every domain's block
    cells = views.denormalise(style.restyle(encodings, partners), spec)
    _figure(views.denormalise(plain, spec), cells.view(count, count, *cells.shape[1:]), domains, alpha, out)


def _figure(plain: Tensor, cells: Tensor, domains: list[str], alpha: float, out: Path) -> None:
    count = len(domains)
    side = SIDE_INCHES * (count + 1)
    figure, axes = plt.subplots(count + 1, count + 1, figsize=(side, side + 0.3), squeeze=False)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_frame_on(False)
    axes[0][0].text(0.5, 0.5, f"content, down\nstyle, across\nalpha {alpha:g}", ha="center", va="center", fontsize=10)
    for k, domain in enumerate(domains):
        axes[0][k + 1].imshow(plain[k].permute(1, 2, 0).numpy())
        axes[0][k + 1].set_title(domain, fontsize=10, parse_math=False)
        axes[k + 1][0].imshow(plain[k].permute(1, 2, 0).numpy())
        axes[k + 1][0].set_ylabel(domain, fontsize=10, parse_math=False)
        for other in range(count):
            if other != k:
                axes[k + 1][other + 1].imshow(cells[k, other].permute(1, 2, 0).numpy())
    figure.tight_layout(pad=0.4)
    save(figure, out)
