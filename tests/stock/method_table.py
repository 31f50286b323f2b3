"""The table of bases and plug-ins in docs/usb.md. Every cell is a training step on stock USB and one on our engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from semilearn_ext.registry import ALGORITHMS, PLUGINS, incompatible
from semilearn_ext.specs import AlgorithmSpec, PluginSpec

TRAINS = "trains / trains"


def render(step: Callable[[str], str]) -> str:
    """The table in Markdown; ``step`` takes a name, runs both steps, and returns the text of a cell."""
    lines = [f"| base | {' | '.join(PLUGINS.names())} |", "|---|" + "---|" * len(PLUGINS.names())]
    reasons: list[str] = []
    for base in sorted(ALGORITHMS, key=lambda spec: spec.name):
        cells = []
        for plugin in PLUGINS:
            reason = why_not(base, plugin)
            if reason and reason not in reasons:
                reasons.append(reason)
            cells.append(f"no ({reasons.index(reason) + 1})" if reason else step(f"{base.name}_{plugin.name}"))
        lines.append(f"| {base.name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *(f"{number}. {reason}" for number, reason in enumerate(reasons, start=1))])


def why_not(base: AlgorithmSpec, plugin: PluginSpec) -> str:
    """The registry's reason, without the name of the base, so that several bases can share it."""
    if base.unavailable:
        return f"The base itself is not available: {base.unavailable}."
    if base.no_plugins:
        return f"The base does not support plug-ins: {base.no_plugins}."
    if incompatible(base, plugin):
        hosts = ", ".join(spec.name for spec in ALGORITHMS if spec.takes_head)
        return f"The plug-in replaces the classifier, which is supported by {hosts}."
    return ""


def update(algorithm: Any, batch: dict[str, Any]) -> None:
    """One training step and its update, through the hooks of USB's loop. Checks that the weights change."""
    before = [parameter.detach().clone() for parameter in algorithm.model.parameters()]
    algorithm.epoch = 0
    for stage in ("before_run", "before_train_epoch", "before_train_step"):
        algorithm.call_hook(stage)
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**algorithm.process_batch(**batch))
    for hook in ("PluginHook", "ParamUpdateHook"):
        algorithm.call_hook("after_train_step", hook)
    assert math.isfinite(float(algorithm.out_dict["loss"]))
    after = list(algorithm.model.parameters())
    assert all(parameter.isfinite().all() for parameter in after)
    assert not all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
