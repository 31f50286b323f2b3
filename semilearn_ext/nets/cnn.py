"""The small network of Digits-DG: four blocks of 3x3 convolution, ReLU and 2x2 max pooling.

Zhou et al., "Deep Domain-Adversarial Image Generation for Domain Generalisation" (AAAI 2020), section 4: 64
kernels in every convolution, no normalisation. At 32x32 the feature has 64 * 2 * 2 = 256 numbers.
"""

from __future__ import annotations

from torch import nn

from semilearn_ext.nets.classifier_net import ClassifierNet

WIDTH, BLOCKS = 64, 4


def cnn(num_classes: int, img_size: int) -> ClassifierNet:
    side = img_size // 2**BLOCKS
    layers: list[nn.Module] = []
    channels = 3
    for _ in range(BLOCKS):
        convolution = nn.Conv2d(channels, WIDTH, 3, padding=1)
        nn.init.kaiming_normal_(convolution.weight)
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers += [convolution, nn.ReLU(inplace=True), nn.MaxPool2d(2)]
        channels = WIDTH
    return ClassifierNet(nn.Sequential(*layers, nn.Flatten()), WIDTH * side * side, num_classes)
