"""The share of a training step that is not spent in the forward pass, backward pass and optimizer.

USB's own loop runs with all hooks and loaders. Two parts of every step are timed: the forward pass with all losses, and
the update (backward pass and optimizer). The rest of the time since the end of the previous step is overhead: computing
views, moving the batch to the device, running hooks and writing records.
"""

from __future__ import annotations

import statistics
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.bench.budget import Part, Stopwatch, host_waits, table, waits_lines
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.plugins.base import StepOutput, View
from semilearn_ext.plugins.mixin import PluginMixin
from semilearn_ext.registry import steps_of
from semilearn_ext.semilearn_api import EMA, EMAHook, Hook
from semilearn_ext.settings import Settings, load_settings, with_values
from semilearn_ext.settings.domains import targets_of

DEFAULTS: dict[str, Any] = {
    "algorithm": "fixmatch",
    "net": "resnet18",
    "img_size": 64,
    "batch_size": 48,
    "target_domain": "pen",
    "device": "cpu",
}


@dataclass(frozen=True)
class StepTimes:
    """Median seconds per step."""

    total: float
    forward: float
    update: float
    plugins: float
    usb_ema: float
    with_gradient: int
    """Number of images that pass through the network with gradient, per step."""
    without_gradient: int
    waits: Counter[str]
    """Where, and how often, the host waited for the device in one additional step."""
    device: torch.device

    @property
    def overhead(self) -> float:
        return 1 - (self.forward + self.update) / self.total


class ImageCounter:
    """Counts the images that pass through a network."""

    def __init__(self, model: nn.Module) -> None:
        self.with_gradient = self.without_gradient = 0
        model.register_forward_pre_hook(self._count)

    def _count(self, _: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        images = len(inputs[0]) if inputs[0].ndim == 4 else 0  # some calls only classify features
        if torch.is_grad_enabled():
            self.with_gradient += images
        else:
            self.without_gradient += images


class StepEndHook(Hook):
    """Records the time at the end of every step. Must be registered last."""

    def __init__(self, stopwatch: Stopwatch, counter: ImageCounter) -> None:
        self.stopwatch, self.counter = stopwatch, counter
        self.times: list[float] = []
        self.passes: list[tuple[int, int]] = []

    def after_train_step(self, algorithm: SSDGBase) -> None:
        self.times.append(self.stopwatch.now())
        self.passes.append((self.counter.with_gradient, self.counter.without_gradient))


def measure(settings: Settings) -> StepTimes:
    """Train for ``num_train_iter`` steps. The first one is a warm-up and is not counted."""
    algorithm = training.build(make_context(settings))
    forward, plugins, update = (Stopwatch(algorithm.device) for _ in range(3))
    ends = StepEndHook(forward, ImageCounter(algorithm.model))
    algorithm.register_hook(ends, None, "LOWEST")
    algorithm.hooks_dict.pop("EvaluationHook")  # only the steps between evaluations are measured
    algorithm.train_step = forward.wrap(algorithm.train_step)
    algorithm.add_plugin_losses = plugins.wrap(algorithm.add_plugin_losses)  # type: ignore[method-assign]
    hook = algorithm.hooks_dict["ParamUpdateHook"]
    hook.after_train_step = update.wrap(hook.after_train_step)
    algorithm.train()
    median = statistics.median
    passes = [last - before for before, last in zip(ends.passes[-2], ends.passes[-1], strict=True)]
    return StepTimes(
        total=median(after - before for before, after in zip(ends.times, ends.times[1:], strict=False)),
        forward=median(forward.seconds[1:]) + (median(plugins.seconds[1:]) if plugins.seconds else 0.0),
        update=median(update.seconds[1:]),
        plugins=_plugin_seconds(algorithm) if isinstance(algorithm, PluginMixin) else 0.0,
        usb_ema=_usb_ema_seconds(algorithm),
        with_gradient=passes[0],
        without_gradient=passes[1],
        waits=_waits(algorithm),
        device=algorithm.device,
    )


def _waits(algorithm: SSDGBase) -> Counter[str]:
    """Host waits of a whole step, from loading the batch to the update."""
    with host_waits(algorithm.device) as waits:
        batch: dict[str, Any] = {}
        for loader in algorithm.loader_dict.values():
            loader.seek(0)
            batch |= next(iter(loader))
        algorithm.step(**batch)
        algorithm.call_hook("after_train_step", "ParamUpdateHook")
    return waits


def _plugin_seconds(algorithm: SSDGBase) -> float:
    """Median seconds of the plug-ins' forward and backward pass, for the features of one additional step."""
    assert isinstance(algorithm, PluginMixin)
    names = ("train_lb", "train_ulb")
    batch = {key: value for name in names for key, value in algorithm.loader_dict[name].dataset[0, 0].items()}
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**algorithm.process_batch(**batch))
    steps = [
        (plugin, _detach(algorithm.step_output(plugin.wants)))
        for plugin in algorithm.plugins.values()
        if plugin.wants is not None
    ]
    algorithm.recorder.clear()

    def run() -> None:
        for plugin, step in steps:
            torch.stack([weight * loss for weight, loss in plugin.losses(step).values()]).sum().backward()

    stopwatch = Stopwatch(algorithm.device)
    for _ in range(20):
        stopwatch.wrap(run)()
    return statistics.median(stopwatch.seconds)


def _detach(step: StepOutput) -> StepOutput:
    """The same values as leaf tensors, at which the backward pass ends."""

    def leaves(view: View) -> View:
        return View(view.features.detach().requires_grad_(), view.logits.detach().requires_grad_())

    return replace(step, labelled=leaves(step.labelled), unlabelled=[leaves(view) for view in step.unlabelled])


def _usb_ema_seconds(algorithm: SSDGBase) -> float:
    """Median seconds per step that USB's own EMA hook, which runs even with ``ema_m: 0``, takes on this network."""
    owner: Any = algorithm
    owner.ema, owner.ema_model = EMA(algorithm.model, 0.0), deepcopy(algorithm.model)
    owner.ema.register()
    stopwatch = Stopwatch(algorithm.device)
    for _ in range(5):
        stopwatch.wrap(EMAHook().after_train_step)(algorithm)
    return statistics.median(stopwatch.seconds)


def _usb_step_lines(settings: Settings) -> list[str]:
    """The time of the same method in USB's step, if it supports that step and was measured in the other one."""
    if settings.step == "usb" or "usb" not in steps_of(settings.base):
        return []
    usb = measure(with_values(settings, step="usb"))
    passes = usb.with_gradient + usb.without_gradient
    return [f"the same in USB's step  {1000 * usb.total:9.1f} ms   ({passes} image passes)"]


def main(config: Path | None, overrides: dict[str, Any], steps: int) -> tuple[str, float]:
    """Return the report and the steps per second. Default: FixMatch, ResNet-18, 64x64, 48 + 48 + 48 images, CPU."""
    fixed = {"num_train_iter": steps + 1, "progress": False}
    settings = load_settings(config, {**(DEFAULTS if config is None else {}), **overrides, **fixed})
    settings = with_values(settings, target_domain=targets_of(settings)[0])
    times = measure(settings)
    unlabelled = settings.batch_size * settings.uratio
    total = times.with_gradient + times.without_gradient
    report = "\n".join(
        [
            f"{settings.algorithm}, step: {settings.step}, {settings.net}, {settings.img_size}x{settings.img_size}, "
            f"{settings.batch_size} labelled + {unlabelled} unlabelled images per step, median of {steps} steps",
            *table(
                [
                    Part("forward and losses", steps, times.forward),
                    Part("backward and optimizer", steps, times.update),
                    Part("views, hooks, records", steps, max(0.0, times.total - times.forward - times.update)),
                ],
                times.device,
            ),
            f"whole step              {1000 * times.total:9.1f} ms",
            f"overhead                {100 * times.overhead:9.2f} %   (goal: at most 5 %)",
            f"plug-ins                {100 * times.plugins / times.total:9.2f} %   (included above; goal: at most 3 %)",
            f"USB's EMA would add     {100 * times.usb_ema / times.total:9.2f} %",
            f"image passes            {total:9d}     (with gradient: {times.with_gradient})",
            *_usb_step_lines(settings),
            *waits_lines(times.waits, times.device),
        ]
    )
    return report, 1 / times.total
