"""How much of a training step is not forward, backward and optimizer.

USB's own loop runs with all hooks and loaders. Two spans are timed inside every step, the algorithm's
``train_step`` (forward pass and losses) and the update (backward pass and optimizer); the rest of the step, from
the end of the one before, is overhead: making views, moving the batch, hooks, records.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import Settings, load_settings
from semilearn_ext.usb import EMA, EMAHook, Hook

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
    """Seconds a step, the median of several."""

    whole: float
    forward: float
    update: float
    plugins: float
    usb_ema: float

    @property
    def overhead(self) -> float:
        return 1 - (self.forward + self.update) / self.whole


class Stopwatch:
    """Wraps a function; keeps how long each call took, with the device's work included."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: list[float] = []

    def now(self) -> float:
        if self.device.type != "cpu":
            getattr(torch, self.device.type).synchronize()
        return time.perf_counter()

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **keywords: Any) -> Any:
            start = self.now()
            result = function(*arguments, **keywords)
            self.seconds.append(self.now() - start)
            return result

        return timed


class StepEnds(Hook):
    """Registered last: the moments at which steps end."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch = stopwatch
        self.moments: list[float] = []

    def after_train_step(self, algorithm: Any) -> None:
        self.moments.append(self.stopwatch.now())


def measure(settings: Settings) -> StepTimes:
    """Train for ``num_train_iter`` steps; the first is left out."""
    algorithm = training.build(make_context(settings))
    forward, update = Stopwatch(algorithm.device), Stopwatch(algorithm.device)
    ends = StepEnds(forward)
    algorithm.register_hook(ends, None, "LOWEST")
    algorithm.hooks_dict.pop("EvaluationHook")  # this is about the steps between evaluations
    hook = algorithm.hooks_dict["ParamUpdateHook"]
    hook.after_train_step = update.around(hook.after_train_step)
    algorithm.train_step = forward.around(algorithm.train_step)
    algorithm.train()
    whole = [after - before for before, after in zip(ends.moments, ends.moments[1:], strict=False)]
    middle = statistics.median
    plugins = _plugins(algorithm) if algorithm.plugins else 0.0
    return StepTimes(
        middle(whole), middle(forward.seconds[1:]), middle(update.seconds[1:]), plugins, _usb_ema(algorithm)
    )


def _plugins(algorithm: Any) -> float:
    """Forward and backward pass of all plug-ins on one more step's features, as far as those."""
    names = ("train_lb", "train_ulb")
    batch = {key: value for name in names for key, value in algorithm.loader_dict[name].dataset[0, 0].items()}
    algorithm.observer.forget()
    out, _ = algorithm.train_step(**algorithm.process_batch(**batch))
    seen = algorithm.observer.observation(out)
    seen = replace(seen, views=[view.detach().requires_grad_() for view in seen.views])

    def run() -> None:
        for plugin in algorithm.plugins.values():
            sum(weight * loss for weight, loss in plugin.losses(seen).values()).backward()

    stopwatch = Stopwatch(algorithm.device)
    for _ in range(20):
        stopwatch.around(run)()
    return statistics.median(stopwatch.seconds)


def _usb_ema(algorithm: Any) -> float:
    """What USB's own EMA hook would take a step on this network, even with ``ema_m: 0``."""
    algorithm.ema, algorithm.ema_model = EMA(algorithm.model, 0.0), deepcopy(algorithm.model)
    algorithm.ema.register()
    stopwatch = Stopwatch(algorithm.device)
    for _ in range(5):
        stopwatch.around(EMAHook().after_train_step)(algorithm)
    return statistics.median(stopwatch.seconds)


def main(config: Path | None, overrides: dict[str, Any], steps: int) -> str:
    """The report. Without a config: FixMatch, ResNet-18 from scratch, 64x64, 48 + 48 + 48 images, CPU."""
    always = {"num_train_iter": steps, "progress": False}
    settings = load_settings(config, {**(DEFAULTS if config is None else {}), **overrides, **always})
    times = measure(settings)
    unlabelled = settings.batch_size * settings.uratio
    return "\n".join(
        [
            f"{settings.algorithm}, {settings.net}, {settings.img_size}x{settings.img_size}, {settings.batch_size} "
            f"labelled + {unlabelled} unlabelled images, median of {steps - 1} steps",
            f"whole step              {1000 * times.whole:9.1f} ms",
            f"forward and losses      {1000 * times.forward:9.1f} ms",
            f"backward and optimizer  {1000 * times.update:9.1f} ms",
            f"outside of them         {100 * times.overhead:9.2f} %   (goal: at most 5 %)",
            f"plug-ins, of these      {100 * times.plugins / times.whole:9.2f} %   (goal: at most 3 %)",
            f"USB's EMA would add     {100 * times.usb_ema / times.whole:9.2f} %",
        ]
    )
