"""Load digits_mini. Its images are drawn by :mod:`semilearn_ext.data.digits_generator`."""

from __future__ import annotations

from pathlib import Path

import torch

from semilearn_ext.data import digits_generator
from semilearn_ext.data.loaded import Loaded
from semilearn_ext.data.splits import Item
from semilearn_ext.settings import Settings
from semilearn_ext.specs import DatasetSpec


def load(spec: DatasetSpec, settings: Settings) -> Loaded:
    """Load all four domains. The images are square, so the test view equals the plain view."""
    domains = digits_generator.load(Path(settings.cache_dir).expanduser())
    items = [
        Item(name, int(label), domain, name)
        for domain in spec.domains
        for name, label in zip(domains[domain].origins, domains[domain].labels, strict=True)
    ]
    pixels = torch.cat([torch.from_numpy(domains[domain].images) for domain in spec.domains])
    return Loaded(pixels.permute(0, 3, 1, 2).contiguous(), items, digits_generator.CLASSES)
