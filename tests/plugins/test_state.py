"""A plug-in's state is saved wherever it is kept; what cannot be saved is an error, never a silent loss."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError
from semilearn_ext.nets.heads import ClassifierHead
from semilearn_ext.plugins.base import ModelSpec, Plugin
from semilearn_ext.plugins.state import check_head

MODEL = ModelSpec(4, 3, 2)


class Bank(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queue = torch.zeros(2)
        self.count = 0
        self.activation = torch.relu  # not state
        self.register_buffer("hidden", torch.zeros(()), persistent=False)


class Mine(Plugin):
    seen: list[int] = []  # noqa: RUF012
    reductions = {"mean": torch.mean}  # noqa: RUF012

    def __init__(self, options: Mapping[str, Any], model: ModelSpec) -> None:
        super().__init__(options, model)
        self.banks = nn.ModuleList([Bank()])
        self.layer = nn.Linear(2, 2)
        self.layer.scale = torch.ones(())  # type: ignore[assignment]
        self.rnn = nn.LSTM(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("steps", torch.zeros(()), persistent=False)
        self.parts: dict[str, Any] = {"a": [torch.zeros(2), (torch.ones(1), {3: torch.zeros(1)})]}


PLACES: dict[str, Callable[[Any], Tensor | int | list[int]]] = {
    "attribute of an inner module": lambda plugin: plugin.banks[0].queue,
    "number of an inner module": lambda plugin: plugin.banks[0].count,
    "buffer of an inner module that is not persistent": lambda plugin: plugin.banks[0].hidden,
    "buffer that is not persistent": lambda plugin: plugin.steps,
    "attribute of one of torch's layers": lambda plugin: plugin.layer.scale,
    "nested lists, tuples and dicts": lambda plugin: plugin.parts["a"][1][1][3],
    "list of the class": lambda plugin: plugin.seen,
    "numbers to record": lambda plugin: plugin.logs["average"],
}


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[Mine]:
    """A plug-in whose state has changed, and a new one that has loaded its ``state_dict``."""
    plugin, new = Mine({}, MODEL), Mine({}, MODEL)
    monkeypatch.setattr(Mine, "seen", [5])
    bank: Any = plugin.banks[0]
    bank.queue, bank.count = torch.tensor([1.0, 2.0]), 3
    for tensor in (bank.hidden, plugin.steps, plugin.layer.scale, plugin.parts["a"][1][1][3]):
        tensor += 4
    plugin.logs["average"] = torch.tensor(6.0)
    state = plugin.state_dict()
    monkeypatch.setattr(Mine, "seen", [])
    new.load_state_dict(state)
    return [plugin, new]


@pytest.mark.parametrize("place", PLACES)
def test_state_is_restored_wherever_it_is_kept(place: str, loaded: list[Mine]) -> None:
    restored = PLACES[place](loaded[1])
    if place == "list of the class":
        assert restored == [5]
        return
    assert torch.equal(torch.as_tensor(restored), torch.as_tensor(PLACES[place](loaded[0])))
    assert float(torch.as_tensor(restored).sum()) != 0


def test_a_saved_state_does_not_change_with_the_plugin() -> None:
    plugin = Mine({}, MODEL)
    saved = plugin.state_dict()["_extra_state"]
    plugin.parts["a"][0] += 1
    assert float(saved["parts"]["a"][0].sum()) == 0


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda plugin: setattr(plugin, "queue", deque()), "Mine.queue: type deque cannot be saved"),
        (lambda plugin: setattr(plugin.banks[0], "queue", deque()), "Mine.banks.0.queue: type deque cannot be saved"),
        (
            lambda plugin: setattr(plugin, "all", [plugin.layer.weight]),
            "Mine.all: parameters in a list or dict are not",
        ),
        (lambda plugin: setattr(plugin, "other", plugin.mean), "Mine.other: is a second name of a buffer"),
        (lambda plugin: setattr(plugin, "rng", torch.Generator()), "Mine.rng: type Generator cannot be saved"),
    ],
)
def test_state_that_cannot_be_restored_is_an_error(change: Callable[[Any], None], expected: str) -> None:
    plugin = Mine({}, MODEL)
    change(plugin)
    with pytest.raises(UserError, match=expected):
        plugin.state_dict()


def test_objects_of_a_library_inside_a_plugin_are_not_an_error() -> None:
    """Networks keep their configuration and their activation functions as attributes."""
    plugin = Mine({}, MODEL)
    plugin.banks[0].config = SimpleNamespace(width=3)  # type: ignore[assignment]
    assert "banks.0.config" not in plugin.state_dict()["_extra_state"]


def test_a_classifier_with_tensors_that_are_not_saved_is_refused() -> None:
    head = ClassifierHead()
    check_head("mine", head)
    head.average = torch.zeros(3)
    with pytest.raises(
        UserError, match=r"plug-in 'mine': ClassifierHead.average would not be saved .* register_buffer"
    ):
        check_head("mine", head)
