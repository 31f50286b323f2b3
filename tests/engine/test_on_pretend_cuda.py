"""Every method in every step on the pretend CUDA device, in the precision that is the default there.

``tests/fixtures/host_waits.json`` lists what the host waits for in a step. After an intended change, update it with
``pytest tests/engine/test_on_pretend_cuda.py --freeze-host-waits``.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from semilearn_ext import registry, training
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.logged_numbers import without_reading
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.ownership import claim
from semilearn_ext.settings import Settings
from tests.conftest import ROOT
from tests.every_method import METHODS, active_loss, batch_of
from tests.pretend_cuda import PretendCuda

Tinier = Callable[..., Settings]
FROZEN = ROOT / "tests" / "fixtures" / "host_waits.json"


def is_trained(name: str) -> bool:
    """All bases, every plug-in on FixMatch, and UPCSC on StyleMatch."""
    method = registry.parse_method(name, "")
    return not method.plugins or method.base == "fixmatch" or name == "stylematch_upcsc"


@pytest.mark.parametrize(("name", "step"), [pair for pair in METHODS if is_trained(pair[0])])
def test_every_method_trains_evaluates_saves_and_resumes(
    name: str, step: str, tinier: Tinier, pretend_cuda: PretendCuda
) -> None:
    settings = tinier(device="cuda", num_train_iter=3, num_eval_iter=3, checkpoint_every=2, **active_loss(name, step))
    folder = RunFolder(run_path(settings))
    claim(folder, settings)
    context = make_context(settings, folder=folder)
    assert context.device.type == "cuda"
    algorithm: Any = training.build(context)
    assert all(parameter.is_cuda for parameter in algorithm.model.parameters())
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    algorithm.train()
    earlier, last = (checkpoint.load(path) for path in folder.checkpoint_files())
    assert (earlier["iteration"], last["iteration"]) == (2, 3)
    resumed = training.build(replace(context, folder=None))
    resumed.restore(earlier)
    resumed.train()
    assert without_time(resumed.metrics) == without_time(algorithm.metrics)
    for key, value in resumed.model.state_dict().items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value.cpu(), last["model"][key]), key


def without_time(metrics: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in record.items() if name != "seconds"} for record in metrics]


def test_a_run_on_cuda_can_be_loaded_on_a_cpu(tinier: Tinier, pretend_cuda: PretendCuda) -> None:
    from semilearn_ext.analysis.load_model import load_model
    from semilearn_ext.analysis.load_run import load_run

    settings = tinier(device="cuda")
    outcome = training.run(settings)
    assert outcome.result["iterations"] == 4
    assert "pretend" in json.dumps(RunFolder(run_path(settings)).read_environment())
    model = load_model(load_run(run_path(settings)), device="cpu")
    assert model.device.type == "cpu"
    assert not any(parameter.is_cuda for parameter in model.net.parameters())


@pytest.mark.parametrize(("name", "step"), METHODS)
def test_the_host_waits_for_nothing_new(
    name: str, step: str, tinier: Tinier, pretend_cuda: PretendCuda, pytestconfig: pytest.Config
) -> None:
    row = waits_of_a_step(tinier(device="cuda", num_train_iter=9, **active_loss(name, step)), pretend_cuda)
    table = json.loads(FROZEN.read_text()) if FROZEN.exists() else {}
    if pytestconfig.getoption("freeze_host_waits"):
        table[f"{name} ({step})"] = row
        rows = [f"{json.dumps(key)}: {json.dumps(table[key])}" for key in sorted(table)]
        FROZEN.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    assert Counter(row) == Counter(table[f"{name} ({step})"])


@pytest.mark.parametrize(
    "values",
    [
        {"average": "both", "average_start": 0.0},
        {"clip_grad": 1.0},
        {"optim": "AdamW", "decay_norm_bias": False},
        {"views_on": "cpu", "eval_with_ema": True},
        {"precision": "fp16", "clip_grad": 1.0},
    ],
)
@pytest.mark.parametrize("name", ["fixmatch_upcsc", "erm"])
def test_the_host_waits_for_nothing_new_with_other_options(
    name: str, values: dict[str, Any], tinier: Tinier, pretend_cuda: PretendCuda
) -> None:
    """The gradient scaler of fp16 reads whether a gradient was infinite."""
    settings = tinier(device="cuda", num_train_iter=9, **active_loss(name, "reference"), **values)
    expected = {"semilearn_ext/engine/hooks.py after_train_step: item": 1} if "precision" in values else {}
    assert waits_of_a_step(settings, pretend_cuda) == expected


def waits_of_a_step(settings: Settings, pretend_cuda: PretendCuda) -> dict[str, int]:
    """The waits of a step that is not the first, and after which nothing is evaluated, logged or saved."""
    algorithm: Any = training.build(make_context(settings))
    algorithm.rho_init = 1.0  # Dash sets it in its warm-up
    algorithm.num_eval_iter, algorithm.epoch = 9, 0
    algorithm.call_hook("before_run")
    algorithm.call_hook("before_train_epoch")
    for algorithm.it in (0, 1):
        with pretend_cuda.counted() as waits:
            algorithm.call_hook("before_train_step")
            batch = algorithm.process_batch(**batch_of(algorithm, 0, algorithm.it))
            algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**batch)
            algorithm.call_hook("after_train_step")
    return {f"{wait.place}: {wait.kind}": count for wait, count in sorted(waits.items())}


def test_all_recorded_waits_come_from_usb() -> None:
    """One of them occurs in this package's update: the gradient of FreeMatch's selection of rows by a mask."""
    outside_usb = {
        (name.partition("_")[0].partition(" ")[0], wait)
        for name, row in json.loads(FROZEN.read_text()).items()
        for wait in row
        if not wait.startswith("semilearn/")
    }
    assert outside_usb == {("freematch", "semilearn_ext/engine/hooks.py after_train_step: index by a mask")}


@pytest.mark.parametrize("stop", [True, False])
def test_a_loss_that_is_not_finite_is_never_saved(stop: bool, tinier: Tinier, pretend_cuda: PretendCuda) -> None:
    """Between two logged steps losses are not read, but a stop may be requested there, which saves a checkpoint."""
    settings = tinier(device="cuda", num_train_iter=12, num_eval_iter=10, checkpoint_every=2, num_log_iter=100)
    folder = RunFolder(run_path(settings))
    claim(folder, settings)
    algorithm: Any = training.build(make_context(settings, folder=folder))
    original = algorithm.process_log_dict

    def with_nan(**logged: Any) -> Any:
        if algorithm.it >= 2:
            logged["sup_loss"] = logged["sup_loss"] * math.nan
            if stop:
                algorithm.request_stop()
        return original(**logged)

    algorithm.process_log_dict = with_nan
    with pytest.raises(UserError, match=f"train/sup_loss is nan at iteration {3 if stop else 4}; .*checkpoint is kept"):
        algorithm.train()
    assert checkpoint.load_newest(folder.path, pytest.fail)["iteration"] == 2  # type: ignore[index]


def test_logged_numbers_stay_on_the_device_and_equal_usbs(tinier: Tinier, pretend_cuda: PretendCuda) -> None:
    algorithm: Any = training.build(make_context(tinier(device="cuda", **active_loss("fixmatch", "usb"))))
    outcome = algorithm.step(**batch_of(algorithm, 0, 0))
    assert set(outcome.terms) == {f"train/{name}" for name in ("sup_loss", "unsup_loss", "total_loss", "util_ratio")}
    for name, value in outcome.terms.items():
        assert isinstance(value, torch.Tensor), name
        assert value.is_cuda, name
        assert not value.requires_grad, name
    terms = {name: float(value) for name, value in outcome.terms.items()}
    assert terms["train/total_loss"] == outcome.total.item() > 0
    assert terms["train/util_ratio"] == 1
    assert terms["train/sup_loss"] + terms["train/unsup_loss"] == pytest.approx(terms["train/total_loss"])


def test_a_step_that_fails_while_logging_restores_item() -> None:
    class Failing:
        device = torch.device("cuda")

        def process_out_dict(self, **values: Any) -> dict[str, Any]:
            return values

        process_log_dict = process_out_dict

        def train_step(self) -> None:
            self.process_out_dict(loss=0)
            assert isinstance(torch.ones(()).item(), torch.Tensor)
            raise RuntimeError("out of memory")

    body: dict[str, Any] = without_reading(Failing, Failing.train_step)  # type: ignore[arg-type]
    adapted: Any = type("Adapted", (Failing,), body)()
    with pytest.raises(RuntimeError, match="out of memory"):
        adapted.train_step()
    assert isinstance(torch.ones(()).item(), float)
