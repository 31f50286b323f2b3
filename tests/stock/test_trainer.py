"""Plug-ins in USB's own ``Trainer`` and ``algorithm.train()``, on USB's own networks."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from semilearn import Trainer, get_algorithm, get_net_builder
from torch.func import functional_call

from tests.stock import toy

Config = Callable[..., Namespace]
BASES = ("fixmatch", "freematch", "flexmatch", "softmatch", "comatch", "simmatch", "adamatch")
WRN = get_net_builder("wrn_28_2", from_name=False)
VIT = get_net_builder("vit_tiny_patch2_32", from_name=False)


def fitted(config: Namespace, net: Callable[..., Any], data: Any = None) -> tuple[Trainer, Any]:
    algorithm = toy.build(config, net, data)
    trainer = Trainer(config, algorithm)
    loaders = algorithm.loader_dict
    trainer.fit(loaders["train_lb"], loaders["train_ulb"], loaders["eval"])
    return trainer, loaders["eval"]


def check_evaluation(trainer: Trainer, loader: Any) -> None:
    """``evaluate`` and ``predict`` use the network or its averaged weights, as requested."""
    algorithm = trainer.algorithm
    for use_ema_model, weights in ((True, algorithm.ema.shadow), (False, dict(algorithm.model.named_parameters()))):
        algorithm.model.eval()
        with torch.no_grad():
            outputs = [functional_call(algorithm.model, weights, batch["x_lb"])["logits"] for batch in loader]
        expected = torch.cat(outputs).softmax(1).numpy()
        labels, prob, truth = trainer.predict(loader, use_ema_model, return_gt=True)
        np.testing.assert_allclose(prob, expected, rtol=1e-5, atol=1e-6)
        assert trainer.evaluate(loader, use_ema_model)["acc"] == pytest.approx((labels == truth).mean())
    assert not torch.equal(
        algorithm.ema.shadow["plugins.upcsc.proxy_projector.weight"], weights["plugins.upcsc.proxy_projector.weight"]
    )


@pytest.mark.parametrize("base", BASES)
def test_trainer_fits_evaluates_and_predicts(base: str, usb_config: Config) -> None:
    config, net = usb_config(algorithm=f"{base}_upcsc", ema_m=0.9), WRN if base == "fixmatch" else toy.noisy_net
    before = {n: p.clone() for n, p in toy.build(config, net).model.named_parameters()}
    trainer, loader = fitted(config, net)
    algorithm = trainer.algorithm
    assert algorithm.it == 4
    log = {name: float(value) for name, value in algorithm.log_dict.items()}
    assert all(math.isfinite(log[f"train/{name}"]) for name in ("total_loss", "upc", "sc", "confident_share"))
    changed = [name for name, value in algorithm.model.named_parameters() if not torch.equal(value, before[name])]
    assert [name for name in changed if name.startswith("plugins.upcsc.feature_projector")]
    assert [name for name in changed if name.endswith("conv1.weight")]
    check_evaluation(trainer, loader)


def test_trainer_fits_a_vision_transformer(usb_config: Config) -> None:
    class Large(toy.ToyImages):
        def __getitem__(self, number: int) -> dict[str, Any]:
            item = super().__getitem__(number)
            return {name: value.repeat(1, 2, 2) if name.startswith("x_") else value for name, value in item.items()}

    data = {"train_lb": Large("lb", 2, 0), "train_ulb": Large("ulb", 2, 1)}
    values = {"optim": "AdamW", "lr": 1e-3, "layer_decay": 0.5, "batch_size": 2, "num_train_iter": 2, "ema_m": 0.5}
    trainer, loader = fitted(usb_config(**values, p_cutoff=0.0), VIT, data)
    log = trainer.algorithm.log_dict
    assert float(log["train/confident_share"]) == 1
    assert math.isfinite(float(log["train/total_loss"]))
    check_evaluation(trainer, loader)


@pytest.mark.parametrize("base", BASES)
def test_usbs_own_loop_evaluates_saves_and_reports(base: str, usb_config: Config, tmp_path: Path) -> None:
    data: dict[str, Any] = toy.datasets()
    data |= {"eval": toy.ToyImages("lb", 24, 2), "test": toy.ToyImages("lb", 30, 3)}
    algorithm = toy.build(usb_config(algorithm=f"{base}_upcsc", ema_m=0.5, eval_batch_size=36), data=data)
    algorithm.train()
    assert algorithm.it in (4, algorithm.best_it + 1)  # USB loads the best checkpoint at the end
    results = algorithm.results_dict
    assert results["eval/best_acc"] == algorithm.best_eval_acc > 0
    best = torch.load(tmp_path / "run" / "model_best.pth")
    assert best["it"] == results["eval/best_it"] + 1
    weights = torch.load(tmp_path / "run" / "latest_model.pth")
    for saved in (weights["model"], weights["ema_model"]):
        assert "plugins.upcsc.feature_projector.weight" in saved
    # The test accuracy is that of the best checkpoint.
    loaded = toy.build(usb_config(algorithm=f"{base}_upcsc", ema_m=0.5, eval_batch_size=36), data=data)
    loaded.load_model(tmp_path / "run" / "model_best.pth")
    loaded.resume = True
    loaded.call_hook("before_run", "EMAHook")
    assert loaded.evaluate("test")["test/top-1-acc"] == results["test/best_acc"]


def test_fbcsa_computes_prototypes_of_every_domain(usb_config: Config) -> None:
    trainer, _ = fitted(usb_config(algorithm="fixmatch_fbcsa", p_cutoff=0.0), toy.toy_net)
    plugin = trainer.algorithm.plugins["fbcsa"]
    assert plugin.steps == 4
    assert plugin.prototypes.abs().sum(-1).min() > 0
    assert math.isfinite(float(trainer.algorithm.log_dict["train/fbc"]))


def test_dash_trains_after_its_warm_up(usb_config: Config) -> None:
    config = usb_config(algorithm="dash_upcsc", num_wu_iter=1)
    algorithm = get_algorithm(config, toy.toy_net, None, None)
    algorithm.loader_dict = toy.loaders(config, toy.datasets())
    algorithm.warmup()
    projector = algorithm.plugins["upcsc"].feature_projector.weight.clone()
    loaders = algorithm.loader_dict
    Trainer(config, algorithm).fit(loaders["train_lb"], loaders["train_ulb"], loaders["eval"])
    assert algorithm.it == 4
    assert not torch.equal(algorithm.plugins["upcsc"].feature_projector.weight, projector)


def test_the_logged_rate_is_that_of_the_base(usb_config: Config) -> None:
    stock, _ = fitted(usb_config(algorithm="fixmatch"), toy.toy_net)
    trainer, _ = fitted(usb_config(lr_plugin=1e-4), toy.toy_net)
    assert trainer.algorithm.log_dict["lr"] == stock.algorithm.log_dict["lr"]
