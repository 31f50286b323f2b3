"""A plug-in on stock USB adds its weighted losses and changes nothing else."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
import torch
from semilearn.core.hooks import Hook
from torch import Tensor
from torch.nn.functional import normalize

from semilearn_ext.losses import upcsc_loss
from semilearn_ext.plugins.base import Wants
from semilearn_ext.registry import PLUGINS
from tests.stock import toy

Config = Callable[..., Namespace]
# DGWM replaces the classifier instead of adding a loss, so it has no weight that could be 0.
ADDED = [spec.name for spec in PLUGINS if not spec.needs.head]


class LogHook(Hook):
    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def after_train_step(self, algorithm: Any) -> None:
        self.steps.append({name: float(value) for name, value in algorithm.log_dict.items()})


def trained(config: Namespace) -> tuple[Any, list[dict[str, float]]]:
    algorithm = toy.build(config, toy.noisy_net)
    log = LogHook()
    algorithm.register_hook(log, priority="LOWEST")
    algorithm.train()
    return algorithm, log.steps


def options_of(base: str, **values: Any) -> dict[str, Any]:
    return {"num_warmup_iter": 1, "clip_grad": 1.0, **toy.HALF_CONFIDENT.get(base, {}), **values}


def weights_off(plugin: str) -> dict[str, Any]:
    return {name: 0.0 for name in PLUGINS.get(plugin, "").options if name.endswith("_weight")}


@pytest.mark.parametrize("base", toy.HOSTS)
def test_with_weights_of_zero_the_base_equals_stock_usb_bit_for_bit(base: str, usb_config: Config) -> None:
    stock, stock_log = trained(usb_config(algorithm=base, **options_of(base)))
    initial = torch.nn.Module.state_dict(toy.build(usb_config(algorithm=base, **options_of(base)), toy.noisy_net).model)
    assert any(not torch.equal(initial[name], value) for name, value in stock.model.state_dict().items())
    for plugin in ADDED:
        off = weights_off(plugin)
        # Prototypes in training mode change the statistics of batch norm, as in the released code; see below.
        mode = {"prototype_mode": "eval"} if plugin == "fbcsa" else {}
        algorithm, log = trained(usb_config(algorithm=f"{base}_{plugin}", **options_of(base, **off, **mode)))
        state = algorithm.model.state_dict()
        for name, value in stock.model.state_dict().items():
            assert torch.equal(state[name], value), (plugin, name)
        for name, value in stock.ema.shadow.items():
            assert torch.equal(algorithm.ema.shadow[name], value), (plugin, name)
        assert len(log) == len(stock_log) == 4
        for logged, expected in zip(log, stock_log, strict=True):
            assert {name: logged[name] for name in expected} == expected, plugin


def test_prototypes_in_training_mode_change_only_the_statistics_of_batch_norm(usb_config: Config) -> None:
    stock, _ = trained(usb_config(algorithm="fixmatch", **options_of("fixmatch")))
    algorithm, _ = trained(usb_config(algorithm="fixmatch_fbcsa", **options_of("fixmatch", **weights_off("fbcsa"))))
    parameters = dict(algorithm.model.named_parameters())
    for name, value in stock.model.named_parameters():
        assert torch.equal(parameters[name], value), name
    assert not torch.equal(algorithm.model.norm.running_mean, stock.model.norm.running_mean)


def test_a_plugin_weight_of_zero_equals_the_base(usb_config: Config) -> None:
    stock, _ = trained(usb_config(algorithm="freematch", **options_of("freematch")))
    algorithm, _ = trained(usb_config(algorithm="freematch_upcsc", **options_of("freematch", plugin_weight=0)))
    state = algorithm.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in stock.model.state_dict().items())


class Spy:
    """Records the calls of the base's masking hook, independently of the recorder."""

    def __init__(self, hook: Any) -> None:
        self.calls: list[tuple[Tensor, Tensor]] = []
        self.masking, hook.masking = hook.masking, self

    def __call__(self, algorithm: Any, **arguments: Any) -> Tensor:
        mask: Tensor = self.masking(algorithm, **arguments)
        prob = arguments["logits_x_ulb"].detach()
        self.calls.append((prob if arguments.get("softmax_x_ulb") is False else prob.softmax(1), mask.detach()))
        return mask


def unlabelled_views(algorithm: Any, batch: dict[str, Tensor]) -> list[Tensor]:
    """The images that the base's step classifies, the weak view first."""
    names = {"pseudolabel": ["x_ulb_w"], "comatch": ["x_ulb_w", "x_ulb_s_0", "x_ulb_s_1"]}
    views = [batch[name] for name in names.get(algorithm.base, ["x_ulb_w", "x_ulb_s"])]
    if algorithm.base == "stylematch":
        views.append(algorithm.restyle(algorithm.style.encode(batch["x_ulb_p"]), batch["d_ulb"]))
    return views


@pytest.mark.parametrize("base", toy.HOSTS)
def test_losses_equal_the_pure_function_of_the_features_of_every_view(base: str, usb_config: Config) -> None:
    algorithm = toy.build(usb_config(algorithm=f"{base}_upcsc", batch_size=12, **toy.HALF_CONFIDENT.get(base, {})))
    spy = Spy(algorithm.hooks_dict["MaskingHook"])
    batch = toy.first_batch(algorithm)
    toy.begin_step(algorithm, batch)
    output = algorithm.step_output(Wants())
    algorithm.call_hook("after_train_step", "PluginHook")
    net, (prob, mask) = toy.network(algorithm), spy.calls[0]
    features = [net(view, only_feat=True) for view in unlabelled_views(algorithm, batch)]
    if base not in (
        "adamatch",
        "comatch",
        "simmatch",
        "softmatch",
    ):  # these align confidences with a target distribution
        logits = net.eval()(unlabelled_views(algorithm, batch)[0])["logits"]
        torch.testing.assert_close(prob, logits.softmax(1), rtol=0, atol=1e-6)

    assert len(output.unlabelled) == len(features)
    for view, expected in zip(output.unlabelled, features, strict=True):
        torch.testing.assert_close(view.features, expected, rtol=0, atol=1e-6)
        assert view.features.requires_grad
    torch.testing.assert_close(output.labelled.features, net(batch["x_lb"], only_feat=True), rtol=0, atol=1e-6)
    assert torch.equal(output.labels, batch["y_lb"])
    assert output.domain is not None
    assert torch.equal(output.domain, batch["d_ulb"])

    plugin, count = algorithm.plugins["upcsc"], len(features)
    terms = upcsc_loss(
        normalize(plugin.feature_projector(torch.cat(features)), dim=1),
        normalize(plugin.proxy_projector(net.fc.weight), dim=1),
        prob.repeat(count, 1),
        (mask >= 1).repeat(count),
    )
    assert float(terms.upc + terms.sc) > 0
    for name, value in (("upc", terms.upc), ("sc", terms.sc)):
        torch.testing.assert_close(algorithm.log_dict[f"train/{name}"], value.detach(), rtol=0, atol=1e-6)


def test_some_images_are_confident_and_others_are_not(usb_config: Config) -> None:
    """Otherwise, the test above would cover only one of the two losses."""
    algorithm = toy.build(usb_config(batch_size=12, **toy.HALF_CONFIDENT["fixmatch"]))
    toy.begin_step(algorithm)
    algorithm.call_hook("after_train_step", "PluginHook")
    assert 0 < float(algorithm.log_dict["train/confident_share"]) < 1
    assert float(algorithm.log_dict["train/upc"]) > 0
    assert float(algorithm.log_dict["train/sc"]) > 0


@pytest.mark.parametrize("base", toy.HOSTS)
@pytest.mark.parametrize("plugin", ADDED)
def test_the_plugins_loss_has_a_gradient_for_its_parameters_and_the_backbone(
    plugin: str, base: str, usb_config: Config
) -> None:
    options = toy.HALF_CONFIDENT.get(base, {})
    algorithm = toy.build(usb_config(algorithm=f"{base}_{plugin}", batch_size=12, **options))
    if base in ("dash", "flexmatch", "freematch", "softmatch"):  # confident about all images at first, so SC has none
        hook = algorithm.hooks_dict["MaskingHook"]
        masking = hook.masking
        hook.masking = lambda *args, **kwargs: masking(*args, **kwargs) * (torch.arange(12) % 2)
    toy.begin_step(algorithm)
    before = algorithm.out_dict["loss"]
    algorithm.call_hook("after_train_step", "PluginHook")
    added = algorithm.out_dict["loss"] - before
    own = dict(algorithm.plugins[plugin].named_parameters())
    net = toy.network(algorithm)
    parameters = {**own, "conv1": net.conv1.weight, "conv2": net.conv2.weight}
    gradients = torch.autograd.grad(added, list(parameters.values()), allow_unused=True)
    for name, gradient in zip(parameters, gradients, strict=True):
        assert gradient is not None, name
        assert gradient.abs().max() > 1e-8, name


@pytest.mark.parametrize("base", toy.HOSTS)
def test_the_logged_total_is_the_loss_that_is_minimised(base: str, usb_config: Config) -> None:
    options = {**toy.HALF_CONFIDENT.get(base, {}), "upc_weight": 0.5, "sc_weight": 2.0, "plugin_weight": 0.7}
    algorithm = toy.build(usb_config(algorithm=f"{base}_upcsc", batch_size=12, **options))
    toy.begin_step(algorithm)
    before = float(algorithm.out_dict["loss"])
    algorithm.call_hook("after_train_step", "PluginHook")
    log = {name: float(value) for name, value in algorithm.log_dict.items()}
    assert log["train/upc_weight"] == pytest.approx(0.35)
    assert log["train/sc_weight"] == pytest.approx(1.4)
    minimised = float(algorithm.out_dict["loss"])
    assert minimised == pytest.approx(before + 0.35 * log["train/upc"] + 1.4 * log["train/sc"], rel=1e-5)
    assert log["train/total_loss"] == pytest.approx(minimised, rel=1e-5)
    assert minimised > before
