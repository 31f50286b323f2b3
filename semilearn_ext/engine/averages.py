"""Averages of the weights over training, evaluated in addition to the last weights and never used in training.

- ``ema``: exponential moving average of all parameters and floating-point buffers, including batch norm's statistics.
- ``swa``: uniform average over the end of training (Izmailov et al., UAI 2018, https://arxiv.org/abs/1803.05407); batch
  norm's statistics are re-estimated.

Averages are lists of tensors instead of a second network, because hooks and plug-ins are attached to the modules of the
first one. As in ``torch.optim.swa_utils.AveragedModel``, the first update copies the weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from semilearn_ext.data import views
from semilearn_ext.data.samplers import DomainBatches, iterations_per_epoch
from semilearn_ext.engine.device import to_device
from semilearn_ext.errors import UserError
from semilearn_ext.semilearn_api import Hook
from semilearn_ext.settings import Settings

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase

STATISTICS_BATCH, STATISTICS_IMAGES = 96, 2000
"""Batch size, and maximum number of images, for re-estimating batch norm's statistics."""
_STREAM = 2
"""Random stream of the order of these images; streams 0 and 1 are those of labelled and unlabelled images."""


class Average:
    """The running average of a list of tensors.

    Args:
        decay: weight of the current average in every update; None for a uniform average.
    """

    def __init__(self, decay: float | None) -> None:
        self.decay = decay
        self.updates = 0
        self.tensors: list[Tensor] = []

    @torch.no_grad()
    def update(self, tensors: list[Tensor]) -> None:
        if self.updates == 0:
            self.tensors = [tensor.detach().clone() for tensor in tensors]
        else:
            weight = 1 / (self.updates + 1) if self.decay is None else 1 - self.decay
            torch._foreach_lerp_(self.tensors, tensors, weight)
        self.updates += 1


class Averages:
    """The averages that are enabled in the settings, by name (``ema``, ``swa``)."""

    def __init__(self, settings: Settings, total_steps: int) -> None:
        both = {"ema": Average(settings.average_decay), "swa": Average(None)}
        self.kept = {name: average for name, average in both.items() if settings.average in (name, "both")}
        self.first_step = settings.average_start * total_steps
        """``swa`` includes the weights after every step later than this."""

    def update(self, model: nn.Module, step: int) -> None:
        """Add the weights after ``step`` steps to the averages."""
        if not self.kept:
            return
        tensors = averaged_tensors(model)
        for name, average in self.kept.items():
            if name == "ema" or step > self.first_step:
                average.update(tensors)

    def started(self) -> list[str]:
        """The names of the averages with at least one update."""
        return [name for name, average in self.kept.items() if average.updates]

    @contextmanager
    def applied(self, name: str, model: nn.Module) -> Iterator[None]:
        """Within this context ``model`` has the averaged weights; afterwards its own are restored bit for bit."""
        tensors = [*model.parameters(), *model.buffers()]
        before = [tensor.detach().clone() for tensor in tensors]
        _copy(averaged_tensors(model), self.kept[name].tensors)
        try:
            yield
        finally:
            _copy(tensors, before)

    def state(self) -> dict[str, Any]:
        return {name: {"updates": average.updates, "tensors": average.tensors} for name, average in self.kept.items()}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        for name, average in self.kept.items():
            if name not in state:
                raise UserError(
                    f"average: the run was started without {name}, which cannot be added later; resume it with its "
                    f"original value of average, or run it again with --overwrite"
                )
            average.updates = state[name]["updates"]
            average.tensors = [tensor.to(device) for tensor in state[name]["tensors"]]


def averaged_tensors(model: nn.Module) -> list[Tensor]:
    """All parameters and floating-point buffers."""
    return [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_floating_point())]


@torch.no_grad()
def _copy(to: list[Tensor], values: list[Tensor]) -> None:
    for tensor, value in zip(to, values, strict=True):
        tensor.copy_(value)
    torch.clear_autocast_cache()


class AveragesHook(Hook):
    """Updates the averages after every optimizer step."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        algorithm.averages.update(algorithm.model, algorithm.it + 1)


@torch.no_grad()
def estimate_statistics(algorithm: SSDGBase) -> None:
    """Re-estimate batch norm's running statistics for the current weights, like ``torch.optim.swa_utils.update_bn``.

    They are the mean of the statistics of the batches in :func:`statistics_batches`. Deviation: only batch norm is in
    training mode, so that no layer draws random numbers. Several processes share every batch.
    """
    context, model = algorithm.context, algorithm.model
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.track_running_stats]
    momenta = [layer.momentum for layer in layers]
    if not layers:
        return
    model.eval()
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # a cumulative average
        layer.train()
    for positions in statistics_batches(algorithm):
        own = torch.from_numpy(positions[context.group.rank :: context.group.world_size])
        x = views.plain(context.data.store[own], context.data.view)
        with algorithm.amp_cm():
            model(to_device(x, context.device, algorithm.channels_last))
    for layer, momentum in zip(layers, momenta, strict=True):
        layer.momentum = momentum


def statistics_batches(algorithm: SSDGBase) -> list[np.ndarray]:
    """Positions of at most about 2,000 source images that the method trains on, in batches and in a fixed order.

    Every batch has the same number of images from every source domain, as in training. No image is repeated unless a
    domain has fewer images than a batch needs.
    """
    data = algorithm.context.data
    unlabelled = [] if algorithm.spec.labelled_only else data.split.unlabelled
    domains = data.by_domain(sorted({*data.split.labelled, *unlabelled}))
    per_domain = max(1, STATISTICS_BATCH // len(domains))
    max_steps = STATISTICS_IMAGES // (per_domain * len(domains))
    steps = min(max(1, max_steps), max(1, iterations_per_epoch([len(part) for part in domains], per_domain)))
    order = DomainBatches(domains, per_domain, steps, seed=data.settings.seed, stream=_STREAM)
    return [order.batch(0, step) for step in range(steps)]
