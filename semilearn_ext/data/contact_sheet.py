"""A contact sheet of a dataset, one row per domain and one column per view, to check what the network will see."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from semilearn_ext import files
from semilearn_ext.data import views
from semilearn_ext.data.experiment import load_images, view_spec
from semilearn_ext.settings import Settings
from semilearn_ext.settings.domains import domains_of

CLASSES_SHOWN = 5


def draw(settings: Settings, out: Path) -> None:
    """Draw one row per domain: the plain, weak and strong views of one image from each of a few classes."""
    loaded = load_images(settings)
    domains = domains_of(settings)
    spec = view_spec(settings)
    rng = torch.Generator().manual_seed(settings.seed)
    makers = {
        "plain": lambda x: views.plain(x, spec),
        "weak": lambda x: views.weak(x, spec, rng),
        "strong": lambda x: views.strong(x, spec, rng),
    }
    shown = min(CLASSES_SHOWN, len(loaded.classes))
    figure, axes = plt.subplots(len(domains), len(makers), figsize=(3 * shown, 1.15 * len(domains)), squeeze=False)
    for row, domain in enumerate(domains):
        first = [
            next(p for p, item in enumerate(loaded.items) if (item.domain, item.label) == (domain, label))
            for label in range(shown)
        ]
        images = loaded.store[torch.tensor(first)]
        for column, (name, make) in enumerate(makers.items()):
            strip = views.denormalise(make(images), spec)
            axis = axes[row][column]
            axis.imshow(torch.cat(list(strip), dim=2).permute(1, 2, 0).numpy())
            axis.set_xticks([])
            axis.set_yticks([])
            if row == 0:
                axis.set_title(f"{name} view", fontsize=12)
            if column == 0:
                axis.set_ylabel(domain, fontsize=12, parse_math=False)
    figure.tight_layout(pad=0.4)
    save(figure, out)


def save(figure: Figure, out: Path) -> None:
    """Write ``figure`` as a PNG file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    files.write_atomically(out, lambda file: file.write(buffer.getbuffer()))
