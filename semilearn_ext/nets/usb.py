"""Build USB's own image networks by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from semilearn_ext import semilearn_api
from semilearn_ext.settings import Settings


def build(settings: Settings) -> Callable[..., nn.Module]:
    constructor = getattr(semilearn_api.nets, settings.net)

    def builder(num_classes: int, **_: Any) -> nn.Module:
        net: nn.Module = constructor(
            num_classes=num_classes,
            pretrained=settings.pretrained,
            pretrained_path=settings.pretrain_path or None,
        )
        return net

    return builder
