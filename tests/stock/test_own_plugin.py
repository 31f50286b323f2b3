"""A plug-in that a USB user writes in a notebook, on stock USB."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
from semilearn import get_config

from semilearn_ext import registry
from semilearn_ext.usb import register
from tests.stock import toy

CELL = """
import torch
from semilearn_ext.extend import Option, Plugin, PluginSpec, register

@register(PluginSpec(name="norm", title="Norm", about="for a test", options={"norm_weight": Option(0.5, "its weight")}))
class Norm(Plugin):
    def __init__(self, options, model):
        super().__init__(options, model)
        self.scale = torch.nn.Parameter(torch.ones(model.num_features))

    def losses(self, step):
        return {"norm": (self.options["norm_weight"], (self.scale * step.unlabelled[-1].features).pow(2).mean())}
"""


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    module = ModuleType("notebook_of_a_user")  # without a file, as in Jupyter
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(CELL, vars(module))
    yield
    registry.remove(module.__name__)


@pytest.mark.usefixtures("notebook")
def test_a_plugin_of_a_notebook_trains_in_stock_usb(usb_config: Callable[..., Namespace]) -> None:
    register("softmatch_norm")
    assert get_config({"algorithm": "softmatch_norm"}).norm_weight == 0.5
    algorithm = toy.build(usb_config(algorithm="softmatch_norm", norm_weight=2.0, lr_plugin=0.1))
    algorithm.train()
    assert algorithm.log_dict["train/norm_weight"] == 2
    assert not (algorithm.plugins["norm"].scale == 1).all()
