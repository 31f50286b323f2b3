"""Build USB's own image networks by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from semilearn_ext import semilearn_api
from semilearn_ext.nets.resnet import load_weights, read_weights
from semilearn_ext.settings import Settings

_HEADS = ("fc", "classifier", "mlp", "head")
"""Beginnings of the names of weights that USB does not load, because they are of other classes."""


def build(settings: Settings) -> Callable[..., nn.Module]:
    constructor = getattr(semilearn_api.nets, settings.net)
    weights = read_weights(Path(settings.pretrain_path)) if settings.pretrained else None

    def builder(num_classes: int, **_: Any) -> nn.Module:
        net: nn.Module = constructor(num_classes=num_classes)
        if weights is not None:
            _load(net, weights)
        return net

    return builder


def _load(net: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load ``weights`` as USB does, except that missing or misshapen ones are an error: USB would train from random
    weights instead. Its ResNet-50 ignores the whole file."""
    own = net.state_dict()
    plain = {name.removeprefix("module."): value for name, value in weights.items()}
    body = {name: value for name, value in plain.items() if name in own and not name.startswith(_HEADS)}
    if "pos_embed" in body:
        body["pos_embed"] = semilearn_api.nets.utils.resize_pos_embed_vit(body["pos_embed"], own["pos_embed"])
    load_weights(net, {name: value for name, value in own.items() if name.startswith(_HEADS)} | body)
