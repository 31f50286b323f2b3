"""A run that USB saved and loaded continues with the numbers of one that was never interrupted."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from semilearn.core.hooks import Hook

from semilearn_ext.registry import methods, parse_method, steps_of
from tests.stock import toy

Config = Callable[..., Namespace]
PAIRS = [
    name for name in methods() if parse_method(name, "").plugins and "usb" in steps_of(parse_method(name, "").base)
]


class Killed(Exception):
    pass


class KillHook(Hook):
    """Simulates the end of the process after the first epoch."""

    def after_train_epoch(self, algorithm: Any) -> None:
        if algorithm.epoch == 0:
            raise Killed


class SeedHook(Hook):
    """Gives every step its own seed: USB does not save random states, and some classifiers draw noise."""

    def before_train_step(self, algorithm: Any) -> None:
        torch.manual_seed(algorithm.it)


def start(config: Namespace) -> Any:
    algorithm = toy.build(config)
    algorithm.register_hook(SeedHook())
    return algorithm


@pytest.mark.parametrize("name", PAIRS)
def test_a_loaded_run_continues_with_the_same_numbers(name: str, usb_config: Config, tmp_path: Path) -> None:
    base = parse_method(name, "").base
    options = {"algorithm": name, "ema_m": 0.5, **toy.HALF_CONFIDENT.get(base, {})}
    uninterrupted = start(usb_config(**options, save_name="uninterrupted"))
    uninterrupted.train()

    first = start(usb_config(**options))
    first.register_hook(KillHook(), priority="LOWEST")
    with pytest.raises(Killed):
        first.train()

    second = start(usb_config(**options, resume=True))
    with torch.no_grad():
        for value in second.model.parameters():
            value.normal_()  # all values must come from the file
    second.load_model(tmp_path / "run" / "latest_model.pth")
    assert second.it == 2
    second.train()

    assert second.it == uninterrupted.it == 4
    for actual, expected in ((second.model, uninterrupted.model), (second.ema_model, uninterrupted.ema_model)):
        assert_same_state(actual.state_dict(), expected.state_dict())
    assert_same_state(second.ema.shadow, uninterrupted.ema.shadow)
    names = [name for name in uninterrupted.log_dict if name.startswith("train/")]
    assert {name: float(second.log_dict[name]) for name in names} == {
        name: float(uninterrupted.log_dict[name]) for name in names
    }
    for actual, expected in zip(second.optimizer.param_groups, uninterrupted.optimizer.param_groups, strict=True):
        assert actual["lr"] == expected["lr"]


def assert_same_state(state: dict[str, Any], expected: dict[str, Any]) -> None:
    assert state.keys() == expected.keys()
    for name, value in expected.items():
        is_equal = torch.equal(state[name], value) if isinstance(value, torch.Tensor) else state[name] == value
        assert is_equal, name


def test_plain_attributes_of_a_plugin_are_saved(usb_config: Config, tmp_path: Path) -> None:
    algorithm = toy.build(usb_config(algorithm="fixmatch_fbcsa"))
    algorithm.train()
    loaded = toy.build(usb_config(algorithm="fixmatch_fbcsa", seed=9))
    assert loaded.plugins["fbcsa"].steps == 0
    loaded.load_model(tmp_path / "run" / "latest_model.pth")
    before, after = (run.plugins["fbcsa"] for run in (algorithm, loaded))
    assert (after.steps, after.seed) == (before.steps, before.seed) == (4, 0)
    assert torch.equal(after.prototypes, before.prototypes)
    assert [draw.tolist() for draw in after.draw()] == [draw.tolist() for draw in before.draw()]
