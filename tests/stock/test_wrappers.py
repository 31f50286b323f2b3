"""Plug-ins in the wrappers that USB puts around the network: DataParallel, DistributedDataParallel, mixed precision."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from semilearn_ext.errors import UserError
from semilearn_ext.losses import upcsc_loss
from semilearn_ext.plugins.base import Wants
from tests.stock import toy, two_processes

Config = Callable[..., Namespace]


def test_data_parallel_on_one_device_changes_nothing(usb_config: Config) -> None:
    plain, wrapped = (toy.build(usb_config(**toy.HALF_CONFIDENT["fixmatch"]), toy.noisy_net) for _ in range(2))
    wrapped.model, wrapped.ema_model = nn.DataParallel(wrapped.model), nn.DataParallel(wrapped.ema_model)
    torch.manual_seed(3)
    plain.train()
    torch.manual_seed(3)
    wrapped.train()
    assert wrapped.plugins["upcsc"] is wrapped.model.module.plugins.upcsc
    assert float(plain.log_dict["train/upc"]) == float(wrapped.log_dict["train/upc"])
    parameters = dict(wrapped.model.module.named_parameters())
    assert all(torch.equal(parameters[name], value) for name, value in plain.model.named_parameters())


def test_data_parallel_over_several_devices_is_refused_before_training(usb_config: Config) -> None:
    algorithm = toy.build(usb_config())
    algorithm.model = nn.DataParallel(algorithm.model)
    algorithm.model.device_ids = [0, 1]
    with pytest.raises(UserError, match="one process per GPU"):
        algorithm.train()


# Methods whose losses are means over the batch, so that the mean over processes equals that of the joint batch.
JOINABLE = {
    "fixmatch_upcsc": {"p_cutoff": 0.6},
    "freematch_upcsc": {"ent_loss_ratio": 0.0},
    "uda_sc": {"p_cutoff": 0.6},
    "simmatch_upcsc": {"p_cutoff": 0.6},
}
OTHERS = (
    "pseudolabel_upcsc",
    "comatch_upcsc",
    "stylematch_upcsc",
    "fixmatch_fbcsa",
    "fixmatch_dgwm",
    "stylematch_dgwm",
)


@pytest.fixture
def float64() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("float64")
def test_two_processes_have_the_gradient_of_one_with_the_joint_batch(usb_config: Config, tmp_path: Path) -> None:
    configs = {name: usb_config(algorithm=name, **options) for name, options in JOINABLE.items()}
    shares = two_processes.run(list(configs.values()), tmp_path)
    for (name, options), (first, second) in zip(JOINABLE.items(), shares, strict=True):
        algorithm = two_processes.build(usb_config(algorithm=name, **options))
        joint = two_processes.step(algorithm, two_processes.batch())
        assert any(parameter.startswith("plugins.") for parameter in joint)
        for parameter, gradient in joint.items():
            assert gradient.abs().max() > 0 or parameter.startswith("mlp_proj"), (name, parameter)
            torch.testing.assert_close(first[parameter], gradient, rtol=0, atol=1e-6, msg=f"{name}: {parameter}")
            assert torch.equal(first[parameter], second[parameter]), (name, parameter)


def test_gradients_are_equal_in_both_processes(usb_config: Config, tmp_path: Path) -> None:
    """Two passes, another classifier, prototypes: every parameter has one gradient, the same in both processes."""
    configs = [usb_config(algorithm=name, p_cutoff=0.6) for name in OTHERS]
    for name, (first, second) in zip(OTHERS, two_processes.run(configs, tmp_path), strict=True):
        for parameter, gradient in first.items():
            assert torch.equal(gradient, second[parameter]), (name, parameter)
        assert sum(float(gradient.abs().sum()) for key, gradient in first.items() if "fc." in key) > 0, name


def test_plugins_stay_in_float32_with_mixed_precision(usb_config: Config) -> None:
    algorithm = toy.build(usb_config(amp=True, batch_size=12, **toy.HALF_CONFIDENT["fixmatch"]))
    algorithm.amp_cm = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    toy.begin_step(algorithm)
    output = algorithm.step_output(Wants())
    assert output.unlabelled[0].features.dtype == torch.bfloat16
    algorithm.call_hook("after_train_step", "PluginHook")
    plugin = algorithm.plugins["upcsc"]
    terms = upcsc_loss(
        normalize(plugin.feature_projector(torch.cat([view.features.float() for view in output.unlabelled])), dim=1),
        normalize(plugin.proxy_projector(algorithm.model.fc.weight), dim=1),
        output.prob.float().repeat(2, 1),
        output.mask.repeat(2),
    )
    for name, value in (("upc", terms.upc), ("sc", terms.sc)):
        logged = algorithm.log_dict[f"train/{name}"]
        assert logged.dtype == torch.float32
        torch.testing.assert_close(logged, value.detach(), rtol=0, atol=1e-6)
    algorithm.call_hook("after_train_step", "ParamUpdateHook")
    assert all(parameter.dtype == torch.float32 and parameter.isfinite().all() for parameter in plugin.parameters())


def test_usbs_loop_runs_with_amp(usb_config: Config) -> None:
    algorithm = toy.build(usb_config(algorithm="freematch_upcsc", amp=True), toy.noisy_net)
    algorithm.amp_cm = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    algorithm.train()
    assert all(torch.isfinite(torch.as_tensor(value)) for value in algorithm.log_dict.values())
