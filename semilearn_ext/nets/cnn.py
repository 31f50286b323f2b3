"""A small network similar to that of Digits-DG: four blocks of 3x3 convolution, ReLU and 2x2 max pooling.

Zhou et al., "Deep Domain-Adversarial Image Generation for Domain Generalisation" (AAAI 2020,
https://arxiv.org/abs/2003.06054), section 4. Deviation: the first two blocks have 16 and 32 kernels instead of 64,
which makes a step four times cheaper; there are still 64 * 2 * 2 = 256 features at 32x32 pixels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import ClassifierNet
from semilearn_ext.settings import Settings

WIDTHS = (16, 32, 64, 64)


def build(settings: Settings) -> Callable[..., ClassifierNet]:
    if settings.pretrained:
        raise UserError(f"{settings.where('pretrained')}: there are no ImageNet weights for the cnn; set it to false")
    if settings.img_size < 2 ** len(WIDTHS):
        raise UserError(f"{settings.where('img_size')}: the cnn needs images of at least {2 ** len(WIDTHS)} pixels")

    def builder(num_classes: int, **_: Any) -> ClassifierNet:
        return cnn(num_classes, settings.img_size, settings.classifier_bias)

    return builder


def cnn(num_classes: int, img_size: int, bias: bool = True) -> ClassifierNet:
    layers: list[nn.Module] = []
    channels = 3
    for width in WIDTHS:
        convolution = nn.Conv2d(channels, width, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
        layers += [convolution, nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        channels = width
    side = img_size // 2 ** len(WIDTHS)
    return ClassifierNet(nn.Sequential(*layers, nn.Flatten()), channels * side * side, num_classes, bias)
