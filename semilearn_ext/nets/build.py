"""Build the network given by the setting ``net``."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from semilearn_ext.registry import NETS
from semilearn_ext.settings import Settings


def net_builder(settings: Settings) -> Callable[..., nn.Module]:
    """The function that USB calls as ``builder(num_classes=C, ...)``. Weight files are read once, here."""
    builder: Callable[..., nn.Module] = NETS.get(settings.net, settings.where("net")).load()(settings)
    return builder
