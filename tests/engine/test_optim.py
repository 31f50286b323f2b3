"""The paper's optimizer settings: groups, rates, decay, schedule."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.optim import build_optimizer, parameter_groups, rate_factor
from semilearn_ext.nets.build import net_builder
from semilearn_ext.settings import Settings, settings_from

Tiny = Callable[..., Settings]
PAPER = {"lr": 0.003, "lr_classifier": 0.01, "lr_plugin": 0.0005, "weight_decay": 5e-4, "momentum": 0.9}


def network() -> nn.Module:
    return net_builder(settings_from(net="resnet18"))(num_classes=7)


def test_the_three_parameter_groups_have_the_papers_rates(tiny: Tiny) -> None:
    algorithm = training.build(make_context(tiny(algorithm="fixmatch_upcsc", **PAPER)))
    net: Any = algorithm.model
    groups = {group["name"]: group for group in algorithm.optimizer.param_groups}
    assert {name: group["lr"] for name, group in groups.items()} == {
        "backbone": 0.003,
        "classifier": 0.01,
        "plugin": 0.0005,
    }
    assert {group["weight_decay"] for group in groups.values()} == {5e-4}
    assert sum(len(group["params"]) for group in groups.values()) == len(list(net.parameters()))
    assert {id(p) for p in groups["classifier"]["params"]} == {id(p) for p in net.classifier.parameters()}


def test_weight_decay_of_norms_and_biases_can_be_turned_off() -> None:
    groups = parameter_groups(network(), settings_from(net="resnet18", decay_norm_bias=False, **PAPER))
    spared = [p for group in groups if group["weight_decay"] == 0 for p in group["params"]]
    assert spared
    assert all(p.ndim == 1 for p in spared)


def test_sgd_without_nesterov() -> None:
    optimizer = build_optimizer(network(), settings_from(**PAPER))
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["momentum"] == 0.9
    assert optimizer.defaults["nesterov"] is False


def test_cosine_to_zero_by_epoch() -> None:
    factor = rate_factor(settings_from(lr_schedule="cosine", lr_step="epoch"), 10, 200)
    assert factor(0) == factor(9) == 1
    assert factor(10) == factor(19) == pytest.approx(0.5 * (1 + math.cos(math.pi / 20)))
    assert factor(200) == 0


def test_cosine_by_iteration_with_warmup() -> None:
    factor = rate_factor(settings_from(lr_step="iteration", num_warmup_iter=20), 10, 120)
    assert factor(10) == 0.5
    assert factor(20) == 1
    assert factor(70) == pytest.approx(0.5)
    assert factor(120) == pytest.approx(0)


def test_usbs_cosine() -> None:
    factor = rate_factor(settings_from(lr_schedule="usb_cosine", lr_step="iteration"), 10, 100)
    assert factor(50) == pytest.approx(math.cos(7 / 16 * math.pi * 0.5))


def test_the_scheduler_scales_every_group(tiny: Tiny) -> None:
    algorithm = training.build(
        make_context(tiny(algorithm="fixmatch_upcsc", num_train_iter=100, lr_step="iteration", **PAPER))
    )
    for _ in range(50):
        algorithm.optimizer.step()
        algorithm.scheduler.step()
    rates = {group["name"]: group["lr"] for group in algorithm.optimizer.param_groups}
    assert rates == pytest.approx({"backbone": 0.0015, "classifier": 0.005, "plugin": 0.00025})
