"""One forward pass that batch norm treats as several.

The SSDG benchmark makes many small passes per step, and batch norm normalises over the images of each. Here the images
of all passes share one forward pass, in which every batch norm layer normalises them group by group and updates its
running statistics once per group, in the order of the passes. The results are the same as with separate passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


def grouped_features(
    model: nn.Module, groups: Sequence[Tensor], repeats: Mapping[int, int] | None = None
) -> list[Tensor]:
    """Features (N_g, D) of every group of images (N_g, 3, H, W), as if each had its own forward pass.

    Args:
        groups: the images of each pass, in the order of the passes.
        repeats: after group g, the running statistics are updated once more with those of group ``repeats[g]``, as by a
            second pass over the same images.
    """
    sizes = [len(images) for images in groups]
    with _normalising(model, sizes, repeats or {}):
        features: Tensor = model(torch.cat(list(groups)), only_feat=True)
    return list(features.split(sizes))


@contextmanager
def _normalising(model: nn.Module, sizes: list[int], repeats: Mapping[int, int]) -> Iterator[None]:
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm)]
    key = (*sizes, *repeats.items())
    for layer in layers:
        # One object per division into groups: a compiled network is compiled again whenever it finds another one.
        known = layer.__dict__.setdefault("_grouped_forwards", {})
        if key not in known:
            known[key] = partial(_forward, layer, sizes=sizes, repeats=repeats)
        layer.forward = known[key]  # type: ignore[method-assign]
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _forward(layer: _BatchNorm, x: Tensor, *, sizes: list[int], repeats: Mapping[int, int]) -> Tensor:
    if not layer.training or not layer.track_running_stats:
        return type(layer).forward(layer, x)
    statistics: dict[int, tuple[Tensor, Tensor]] = {}
    outputs = []
    for number, part in enumerate(x.split(sizes)):
        assert layer.running_mean is not None
        assert layer.running_var is not None
        before = (layer.running_mean.clone(), layer.running_var.clone()) if number in repeats.values() else None
        outputs.append(type(layer).forward(layer, part))
        momentum = _momentum(layer)
        if before is not None:
            statistics[number] = (
                torch.lerp(before[0], layer.running_mean, 1 / momentum),
                torch.lerp(before[1], layer.running_var, 1 / momentum),
            )
        if number in repeats:
            mean, variance = statistics[repeats[number]]
            assert layer.num_batches_tracked is not None
            layer.num_batches_tracked.add_(1)
            # Through .data, because autograd saves the statistics of earlier groups, even though they are not used.
            layer.running_mean.data.lerp_(mean, momentum)
            layer.running_var.data.lerp_(variance, momentum)
    return torch.cat(outputs)


def _momentum(layer: _BatchNorm) -> float:
    if layer.momentum is None:
        raise ValueError("batch norm with a cumulative average (momentum=None) cannot normalise by group")
    return float(layer.momentum)
