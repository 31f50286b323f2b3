"""A small residual network with batch norm and its own pretrained weights, for digits_mini.

One 3x3 convolution and one basic block of He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016,
https://arxiv.org/abs/1512.03385), per width; 128 features. Its weights were trained on pictures of letters and symbols,
without digits, by :mod:`semilearn_ext.nets.resnet_mini_pretrain`. A run therefore starts from a pretrained network with
batch norm, like those of the paper, without a download.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import ClassifierNet
from semilearn_ext.nets.resnet import load_backbone, read_weights
from semilearn_ext.nets.specs import RESNET_MINI_SHA256
from semilearn_ext.settings import Settings

WIDTHS = (16, 32, 64, 128)
EMBEDDED = Path(__file__).with_name("resnet_mini.pt")


def build(settings: Settings) -> Callable[..., ClassifierNet]:
    weights = None
    if settings.pretrained:
        weights = read_weights(Path(settings.pretrain_path)) if settings.pretrain_path else embedded_weights()

    def builder(num_classes: int, **_: Any) -> ClassifierNet:
        net = backbone()
        if weights is not None:
            load_backbone(net, weights)
        return ClassifierNet(net, WIDTHS[-1], num_classes, settings.classifier_bias)

    return builder


def embedded_weights() -> dict[str, torch.Tensor]:
    """The weights that come with the package, checked against their hash."""
    content = EMBEDDED.read_bytes()
    if hashlib.sha256(content).hexdigest() != RESNET_MINI_SHA256:
        raise UserError(f"pretrained: {EMBEDDED} is damaged; install the package again")
    state: dict[str, torch.Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    return state


def backbone() -> nn.Sequential:
    """The backbone, which maps images (N, 3, H, W) to features (N, 128)."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, WIDTHS[0], 3, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(WIDTHS[0]),
        nn.ReLU(inplace=True),
        BasicBlock(WIDTHS[0], WIDTHS[0]),
    ]
    for before, width in pairwise(WIDTHS):
        shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride=2, bias=False), nn.BatchNorm2d(width))
        layers.append(BasicBlock(before, width, 2, shortcut))
    for module in layers:
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
