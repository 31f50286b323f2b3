"""Parameter groups, the optimizer and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from semilearn_ext.nets.classifier_net import parameter_role
from semilearn_ext.settings import Settings


def learning_rates(settings: Settings) -> dict[str, float]:
    """The initial learning rate of each role."""
    classifier = settings.lr if settings.lr_classifier is None else settings.lr_classifier
    return {"backbone": settings.lr, "classifier": classifier}


def parameter_groups(model: nn.Module, settings: Settings) -> list[dict[str, Any]]:
    """One group per role, or two if norm layers and biases get no weight decay. ``name`` is the role.

    The plug-in mixin moves the parameters of plug-ins to a separate group.
    """
    groups: dict[tuple[str, bool], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decays = settings.decay_norm_bias or parameter.ndim > 1
            groups.setdefault((parameter_role(name), decays), []).append(parameter)
    rates = learning_rates(settings)
    return [
        {
            "name": role,
            "params": parameters,
            "lr": rates[role],
            "weight_decay": settings.weight_decay if decays else 0.0,
        }
        for (role, decays), parameters in groups.items()
    ]


def build_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    groups = parameter_groups(model, settings)
    if settings.optim == "AdamW":
        return torch.optim.AdamW(groups, lr=settings.lr, weight_decay=settings.weight_decay)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov)


def rate_factor(settings: Settings, steps_per_epoch: int, total_steps: int) -> Callable[[int], float]:
    """A function from the iteration to a factor on the initial learning rate.

    The paper's schedule is 0.5 (1 + cos(pi t / T)) with t counted in whole epochs; USB's is cos(7 pi t / 16 T)
    with t in iterations.
    """

    def factor(iteration: int) -> float:
        warmup = settings.num_warmup_iter
        if iteration < warmup:
            return iteration / warmup
        if settings.lr_schedule == "constant":
            return 1.0
        if settings.lr_step == "epoch":
            progress = iteration // steps_per_epoch / math.ceil(total_steps / steps_per_epoch)
        else:
            progress = (iteration - warmup) / max(1, total_steps - warmup)
        progress = min(progress, 1.0)
        if settings.lr_schedule == "usb_cosine":
            return math.cos(7 / 16 * math.pi * progress)
        return 0.5 * (1 + math.cos(math.pi * progress))

    return factor


def build_scheduler(
    optimizer: torch.optim.Optimizer, settings: Settings, steps_per_epoch: int, total_steps: int
) -> LambdaLR:
    return LambdaLR(optimizer, rate_factor(settings, steps_per_epoch, total_steps))


def current_rates(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    return {f"lr/{group['name']}": float(group["lr"]) for group in optimizer.param_groups}
