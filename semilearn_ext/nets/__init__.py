"""Networks by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.nets.cnn import cnn
from semilearn_ext.nets.resnet import imagenet_weights, resnet18
from semilearn_ext.settings import Settings

OUR_NETS = ("cnn", "resnet18")
_IMAGE_PREFIXES = ("wrn", "resnet", "vit")


def net_builder(settings: Settings) -> Callable[..., nn.Module]:
    """A function in the form USB calls: ``builder(num_classes=C, ...)``. Weights are read once, here."""
    if settings.net == "cnn":
        if settings.pretrained:
            raise UserError(f"{settings.where('pretrained')}: the cnn has no ImageNet weights; set it to false")
        if settings.img_size < 16:
            raise UserError(f"{settings.where('img_size')}: the cnn needs at least 16 pixels")
        return lambda num_classes, **_: cnn(num_classes, settings.img_size)
    if settings.net == "resnet18":
        weights = imagenet_weights(settings.pretrain_path) if settings.pretrained else None
        return lambda num_classes, **_: resnet18(num_classes, weights)
    return _usb_builder(settings)


def _usb_builder(settings: Settings) -> Callable[..., nn.Module]:
    from semilearn_ext.usb import nets as usb_nets

    known = sorted(
        name for name, value in vars(usb_nets).items() if name.startswith(_IMAGE_PREFIXES) and inspect.isfunction(value)
    )
    if settings.net not in known:
        hint = did_you_mean(settings.net, [*OUR_NETS, *known]) or f" (known: {', '.join([*OUR_NETS, *known])})"
        raise UserError(f"{settings.where('net')}: {settings.net!r} is not a known network{hint}")
    builder = getattr(usb_nets, settings.net)

    def build(num_classes: int, **_: Any) -> nn.Module:
        return builder(
            num_classes=num_classes,
            pretrained=settings.pretrained,
            pretrained_path=settings.pretrain_path or None,
        )

    return build
