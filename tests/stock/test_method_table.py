"""Every compatible base and plug-in train, on stock USB and on this package's engine, as the docs state."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable

from semilearn import get_algorithm
from semilearn.core import AlgorithmBase
from semilearn.core.utils import ALGORITHMS

from semilearn_ext import training
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.registry import methods, parse_method, steps_of
from semilearn_ext.settings import Settings
from tests.conftest import ROOT
from tests.stock import method_table, toy


def test_every_method_is_registered_for_usb_and_for_the_engine() -> None:
    for name in methods():
        steps = steps_of(parse_method(name, "").base)
        assert (name in ALGORITHMS) == ("usb" in steps), name
        assert (f"ssdg_{name}" in ALGORITHMS) == ("usb" in steps), name
        assert "usb" in steps or f"ssdg_{name}@reference" in ALGORITHMS, name


def test_every_base_can_be_built_in_usb_and_on_the_engine(
    usb_config: Callable[..., Namespace], tiny: Callable[..., Settings]
) -> None:
    for name in methods():
        method = parse_method(name, "")
        if method.plugins:
            continue
        assert isinstance(training.build(make_context(tiny(algorithm=name))), SSDGBase)
        # USB's ReMixMatch reads the labels of USB's own datasets when it is built.
        if "usb" in steps_of(name) and name != "remixmatch":
            algorithm = get_algorithm(usb_config(algorithm=name), toy.toy_net, None, None)
            assert isinstance(algorithm, AlgorithmBase)
            assert not isinstance(algorithm, SSDGBase)


def test_every_pair_trains_in_usb_and_on_the_engine_as_documented(
    usb_config: Callable[..., Namespace], tiny: Callable[..., Settings]
) -> None:
    def step(name: str) -> str:
        options = {"num_wu_iter": 1} if name.startswith("dash") else {}
        stock = toy.build(usb_config(algorithm=name, **options))
        method_table.update(stock, toy.first_batch(stock))
        on_engine = training.build(make_context(tiny(algorithm=name, **options)))
        if name.startswith("dash"):
            on_engine.warmup()
        method_table.update(on_engine, toy.first_batch(on_engine))
        return method_table.TRAINS

    table = method_table.render(step)
    assert table in (ROOT / "docs" / "usb.md").read_text(encoding="utf-8"), f"docs/usb.md needs this table:\n{table}"
