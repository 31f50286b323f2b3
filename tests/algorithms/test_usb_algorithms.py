"""All of USB's algorithms that are available train, learn from unlabelled images, and resume."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from semilearn.algorithms import get_algorithm
from semilearn.core.utils import ALGORITHMS

import semilearn_ext.usb  # noqa: F401
from semilearn_ext import training
from semilearn_ext.algorithms.usb_specs import SPECS
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.engine.context import make_context, usb_args
from semilearn_ext.nets.build import net_builder
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import Settings
from tests.conftest import FinalStates

Tiny = Callable[..., Settings]
RUNNABLE = sorted(spec.name for spec in SPECS if not spec.unavailable)
SUPERVISED = {"supervised", "fullysupervised"}
# Options with which the unlabelled loss is not zero within the few steps of a test.
ACTIVE_LOSS: dict[str, dict[str, Any]] = {
    "dash": {"num_wu_iter": 3},
    **{name: {"p_cutoff": 0.0} for name in ("fixmatch", "uda", "defixmatch", "flexmatch", "adamatch")},
    **{name: {"p_cutoff": 0.0} for name in ("comatch", "simmatch")},
    "pseudolabel": {"p_cutoff": 0.0, "unsup_warm_up": 0.01},
    **{name: {"unsup_warm_up": 0.01} for name in ("meanteacher", "pimodel", "mixmatch", "remixmatch", "vat")},
}


def build(settings: Settings) -> Any:
    return get_algorithm(usb_args(make_context(settings)), net_builder(settings), None, None)


def test_usb_keeps_its_own_classes_under_its_own_names() -> None:
    for name in RUNNABLE:
        assert ALGORITHMS[name].__module__.startswith("semilearn."), name
        on_engine = ALGORITHMS[f"ssdg_{name}"]
        assert issubclass(on_engine, ALGORITHMS[name]), name
        assert on_engine.__mro__.index(SSDGBase) > on_engine.__mro__.index(ALGORITHMS[name]), name


@pytest.mark.parametrize("name", RUNNABLE)
def test_every_algorithm_trains_in_usbs_own_loop(name: str, tinier: Tiny) -> None:
    settings = tinier(algorithm=name, **ACTIVE_LOSS.get(name, {}))
    outcome = training.run(settings)
    assert outcome.result["iterations"] == 4
    state = load(checkpoint_files(run_path(settings))[-1])
    assert state["iteration"] == 4
    assert all(math.isfinite(float(value.double().sum())) for value in state["model"].values())


@pytest.mark.parametrize("name", sorted(set(RUNNABLE) - SUPERVISED))
def test_unlabelled_images_have_a_gradient(name: str, tiny: Tiny) -> None:
    """The same step with other unlabelled images has another gradient, so the term is neither detached nor zero."""
    algorithm = build(tiny(algorithm=name, lr=0.0, num_train_iter=8, **ACTIVE_LOSS.get(name, {})))
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    labelled = next(iter(algorithm.loader_dict["train_lb"]))
    maker = algorithm.loader_dict["train_ulb"].dataset

    def gradient(unlabelled: dict[str, torch.Tensor], iteration: int = 4) -> torch.Tensor:
        algorithm.it, algorithm.epoch = iteration, iteration // 4
        torch.manual_seed(0)
        algorithm.model.zero_grad()
        out, _ = algorithm.train_step(**algorithm.process_batch(**labelled, **unlabelled))
        out["loss"].backward()
        backbone = next(p for n, p in algorithm.model.named_parameters() if n.endswith("backbone.0.weight"))
        return backbone.grad.clone()

    gradient(maker[0, 2], iteration=0)  # Dash sets its threshold in the first step
    assert not torch.allclose(gradient(maker[0, 0]), gradient(maker[0, 1]), rtol=1e-3)


def test_supervised_loads_no_unlabelled_image(tiny: Tiny) -> None:
    assert "train_ulb" not in build(tiny(algorithm="supervised")).loader_dict


def test_only_the_requested_views_are_computed(tiny: Tiny) -> None:
    def views(name: str) -> set[str]:
        loader = build(tiny(algorithm=name)).loader_dict["train_ulb"]
        return {key for key in loader.dataset[0, 0] if key.startswith("x_")}

    assert views("fixmatch") == {"x_ulb_w", "x_ulb_s"}
    assert views("pseudolabel") == {"x_ulb_w"}
    assert views("comatch") == {"x_ulb_w", "x_ulb_s_0", "x_ulb_s_1"}


@pytest.mark.parametrize("name", ["meanteacher", "simmatch", "flexmatch", "comatch"])
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, tinier: Tiny, final_states: FinalStates) -> None:
    """Teachers, memory banks, queues and counts are all in the checkpoint."""
    values = {"algorithm": name, "num_train_iter": 6, "num_eval_iter": 6, **ACTIVE_LOSS.get(name, {})}
    expected, resumed = final_states(tinier, 3, **values)
    assert all(torch.equal(expected[key], resumed[key]) for key in expected)


@pytest.mark.parametrize("name", ["vat", "mixmatch"])
def test_loader_processes_do_not_affect_results(name: str, tiny: Tiny, final_states: FinalStates) -> None:
    """Methods that draw from the global generators: with and without workers, uninterrupted and resumed."""
    values = {"algorithm": name, "num_train_iter": 3, "num_eval_iter": 3, **ACTIVE_LOSS[name]}
    expected, resumed = final_states(tiny, 2, num_workers=1, **values)
    assert all(torch.equal(expected[key], resumed[key]) for key in expected)
