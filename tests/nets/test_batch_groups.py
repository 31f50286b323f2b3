"""Batch norm by groups in a compiled network. The steps that use it are compared with the released code elsewhere."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from semilearn_ext.nets.batch_groups import grouped_features
from semilearn_ext.nets.classifier_net import ClassifierNet


def test_a_compiled_network_gives_the_same_features_and_is_compiled_once_per_grouping() -> None:
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    plain = ClassifierNet(nn.Sequential(*layers), 4, 2)
    compiled = deepcopy(plain)
    torch._dynamo.reset()
    compilations = []

    def backend(graph: torch.fx.GraphModule, _: object) -> torch.fx.GraphModule:
        compilations.append(graph)
        return graph

    compiled.compile(backend=backend)
    torch.manual_seed(0)
    divisions, counts = ((4, 4), (6, 2, 2)), []
    for _ in range(4):
        for sizes in divisions:
            groups = [torch.randn(size, 3, 8, 8) + place for place, size in enumerate(sizes)]
            for actual, expected in zip(
                grouped_features(compiled, groups), grouped_features(plain, groups), strict=True
            ):
                torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        counts.append(len(compilations))
    assert counts == [2, 2, 2, 2]
    assert torch.equal(compiled.backbone[1].running_mean, plain.backbone[1].running_mean)
