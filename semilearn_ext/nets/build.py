"""Build the network given by the setting ``net``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from semilearn_ext.errors import UserError, shown
from semilearn_ext.registry import NETS
from semilearn_ext.settings import Settings


def net_builder(settings: Settings) -> Callable[..., nn.Module]:
    """The function that USB calls as ``builder(num_classes=C, ...)``. Weight files are read once, here."""
    spec = NETS.get(settings.net, settings.where("net"))
    builder: Callable[..., nn.Module] = spec.load()(settings)
    if not callable(builder) or isinstance(builder, nn.Module):
        raise UserError(
            f"network {spec.name!r}: its function must return another one, builder(num_classes=C) -> nn.Module, got "
            f"{shown(builder)}"
        )

    def checked(**arguments: Any) -> nn.Module:
        net = builder(**arguments)
        if not isinstance(net, nn.Module):
            raise UserError(f"network {spec.name!r}: its builder must return an nn.Module, got {shown(net)}")
        return net

    return checked
