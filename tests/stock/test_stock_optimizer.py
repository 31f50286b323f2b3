"""Parameters of plug-ins in USB's optimizer, schedule and averaged weights."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from semilearn import get_algorithm, get_net_builder
from torch import nn

from tests.stock import toy

Config = Callable[..., Namespace]


def rates(algorithm: Any) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of every parameter, each of which is in one group."""
    names = {parameter: name for name, parameter in algorithm.model.named_parameters()}
    groups = algorithm.optimizer.param_groups
    parameters = [names[parameter] for group in groups for parameter in group["params"]]
    assert sorted(parameters) == sorted(names.values())
    return {names[parameter]: (group["lr"], group["weight_decay"]) for group in groups for parameter in group["params"]}


class Unmatched(nn.Module):
    """A network without a group matcher, for which USB groups twelve parameters into a layer."""

    pretrained_cfg: ClassVar[dict[str, str]] = {"classifier": "fc"}

    def __init__(self, num_classes: int, **_: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(6))
        self.fc = nn.Linear(4, num_classes)


NETS = {
    "wrn": get_net_builder("wrn_28_2", from_name=False),
    "vit": get_net_builder("vit_tiny_patch2_32", from_name=False),
    "unmatched": Unmatched,
}


@pytest.mark.parametrize("layer_decay", [1.0, 0.5])
@pytest.mark.parametrize("net", NETS)
def test_parameters_of_the_base_keep_their_rates(net: str, layer_decay: float, usb_config: Config) -> None:
    values = {"layer_decay": layer_decay, "lr": 0.02, "lr_plugin": 0.007, "weight_decay": 0.01}
    stock = rates(get_algorithm(usb_config(algorithm="fixmatch", **values), NETS[net], None, None))
    with_plugin = rates(get_algorithm(usb_config(algorithm="fixmatch_upcsc", **values), NETS[net], None, None))
    assert {name: with_plugin.pop(name) for name in stock} == stock
    assert (len({rate for rate, _ in stock.values()}) > 1) == (layer_decay < 1)
    projectors = ("feature_projector.weight", "feature_projector.bias", "proxy_projector.weight")
    assert with_plugin == {f"plugins.upcsc.{name}": (0.007, 0.01) for name in projectors}


@pytest.mark.parametrize("optim", ["SGD", "AdamW"])
def test_the_group_of_a_plugin_has_its_own_rate_and_usbs_cosine(optim: str, usb_config: Config) -> None:
    config = usb_config(optim=optim, lr=0.02, lr_plugin=0.007, num_train_iter=4, epoch=1, num_warmup_iter=1)
    algorithm = toy.build(config)
    parameters = set(algorithm.plugins["upcsc"].parameters())
    groups = [group for group in algorithm.optimizer.param_groups if parameters & set(group["params"])]
    assert [set(group["params"]) for group in groups] == [parameters]
    rates_by_step: list[tuple[float, float]] = []
    algorithm.optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates_by_step.append((groups[0]["lr"], optimizer.param_groups[-1]["lr"]))
    )
    algorithm.train()
    factors = [0.0, *(math.cos(7 / 16 * math.pi * step / 3) for step in range(3))]
    assert [rate for rate, _ in rates_by_step] == pytest.approx([0.007 * factor for factor in factors])
    assert [rate for _, rate in rates_by_step] == pytest.approx([0.02 * factor for factor in factors])


@pytest.mark.parametrize(
    "name", ["fixmatch_upcsc", "comatch_upcsc", "simmatch_upcsc", "stylematch_upcsc", "fixmatch_dgwm"]
)
def test_averaged_weights_include_the_plugin(name: str, usb_config: Config) -> None:
    algorithm = toy.build(usb_config(algorithm=name, ema_m=0.5, batch_size=12, p_cutoff=0.6, lr_plugin=0.1))
    start = {name: value.clone() for name, value in algorithm.model.named_parameters()}
    algorithm.train()
    assert algorithm.ema.shadow.keys() == start.keys()
    averaged = dict(algorithm.ema_model.named_parameters())
    assert any(name.startswith(("plugins.", "fc.describe")) for name in start)
    assert averaged.keys() == start.keys()
    for parameter in [name for name in start if name.startswith(("plugins.", "fc.describe"))]:
        shadow = algorithm.ema.shadow[parameter]
        assert (averaged[parameter] == shadow).all()
        assert not (shadow == start[parameter]).all(), parameter
        assert not (shadow == algorithm.model.get_parameter(parameter)).all(), parameter
