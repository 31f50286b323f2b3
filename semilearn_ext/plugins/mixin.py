"""Add plug-ins to any USB algorithm, in stock USB and on this package's engine alike.

``class FixMatchUPCSC(PluginMixin, FixMatch)`` is USB's FixMatch with plug-ins. Their modules are part of the model, so
they are included in USB's optimizer, averaged weights and checkpoints. Their options are arguments of the algorithm,
and a USB hook adds their losses right before the update. USB itself is not changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR

from semilearn_ext.data.packed import send
from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import class_weights, find_classifier, replace_classifier
from semilearn_ext.nets.heads import ClassifierHead
from semilearn_ext.plugins.base import ModelSpec, Plugin, StepOutput, Wants
from semilearn_ext.plugins.checks import check_logs, check_losses, check_needs, check_plugin, head_of, plugin_class
from semilearn_ext.plugins.recorder import StepRecorder
from semilearn_ext.semilearn_api import AlgorithmBase, Hook
from semilearn_ext.settings.convert import option_value
from semilearn_ext.settings.schema import KEYS
from semilearn_ext.specs import Option, PluginSpec

GENERAL = {name: Option.of_setting(KEYS[name]) for name in ("plugin_weight", "lr_plugin")}
"""General settings that an algorithm with plug-ins reads from its arguments."""
DOMAINS = ("d_lb", "d_ulb")
"""Batch entries that contain the source domains of labelled and unlabelled images."""


class PluginMixin(AlgorithmBase):
    """Placed before a USB algorithm class in the bases of a class. ``plugin_specs`` lists the plug-ins."""

    plugin_specs: ClassVar[tuple[PluginSpec, ...]] = ()
    model: nn.Module

    @property
    def plugins(self) -> dict[str, Plugin]:
        modules = unwrap(self.model).get_submodule("plugins")
        return {spec.name: getattr(modules, spec.name) for spec in self.plugin_specs}

    # --- called by USB while it builds an algorithm ---------------------------------------------------------

    def set_model(self) -> nn.Module:
        model: nn.Module = super().set_model()
        self.bare_classifier = find_classifier(model)
        self.num_domains = getattr(self.args, "num_domains", 0) or 0
        self.plugin_weight = general(self.args, "plugin_weight")
        sizes = ModelSpec(class_weights(self.bare_classifier).shape[1], self.num_classes, self.num_domains)
        # The base algorithm must draw the same random numbers as without plug-ins.
        with torch.random.fork_rng(devices=[]):
            plugins = {spec.name: self._build(spec, sizes) for spec in self.plugin_specs}
            heads = [head for spec in self.plugin_specs if (head := head_of(spec, plugins[spec.name])) is not None]
        _attach(model, nn.ModuleDict(plugins), heads[0] if heads else None)
        if self.distributed:
            model.register_forward_hook(_use_plugin_parameters)
        return model

    def _build(self, spec: PluginSpec, model: ModelSpec) -> Plugin:
        check_needs(spec, model)
        options = {
            name: option_value(option, getattr(self.args, name, option.default), f"{spec.name}: {name}")
            for name, option in spec.options.items()
        }
        plugin = plugin_class(spec)(options, model)
        check_plugin(spec, plugin)
        return plugin

    def set_ema_model(self) -> nn.Module | None:
        with self._without_plugins() as (plugins, head):
            ema_model: nn.Module | None = super().set_ema_model()
        if ema_model is not None:
            _attach(ema_model, deepcopy(plugins), deepcopy(head))
        return ema_model

    @contextmanager
    def _without_plugins(self) -> Iterator[tuple[nn.ModuleDict, ClassifierHead | None]]:
        """Within this context the network is as the base builds it, for code that builds a second one to compare."""
        plugins, classifier = self.model.get_submodule("plugins"), find_classifier(self.model)
        assert isinstance(plugins, nn.ModuleDict)
        head = classifier if isinstance(classifier, ClassifierHead) and classifier is not self.bare_classifier else None
        del self.model.plugins
        replace_classifier(self.model, self.bare_classifier)
        try:
            yield plugins, head
        finally:
            _attach(self.model, plugins, head)

    def set_optimizer(self) -> tuple[torch.optim.Optimizer, Any]:
        optimizer, scheduler = super().set_optimizer()
        parameters = [parameter for plugin in self.plugins.values() for parameter in plugin.parameters()]
        if parameters:
            _move_to_plugin_group(optimizer, parameters, general(self.args, "lr_plugin"), self.args.weight_decay)
            if isinstance(scheduler, LambdaLR):
                scheduler = LambdaLR(optimizer, [*scheduler.lr_lambdas, scheduler.lr_lambdas[-1]])
        return optimizer, scheduler

    def set_hooks(self) -> None:
        self.recorder = StepRecorder(self.model, list(signature(self.train_step).parameters), self.num_domains)
        # Before super(), because hooks of equal priority run in order of registration, and USB's update is HIGHEST too.
        self.register_hook(PluginHook(), "PluginHook", "HIGHEST")
        super().set_hooks()

    # --- called by USB while it trains ----------------------------------------------------------------------

    def process_batch(self, input_args: Iterable[str] | None = None, **batch: Any) -> dict[str, Any]:
        ready: dict[str, Any] = super().process_batch(input_args, **batch)
        self._check_domains(batch)
        device = next(self.model.parameters()).device
        self.recorder.start(ready, {name: send(batch[name], device) for name in DOMAINS if name in batch})
        return ready

    def _check_domains(self, batch: dict[str, Any]) -> None:
        needed = [f"d_{name.split('_')[1]}" for name in batch if name.startswith("x_")]
        for spec in self.plugin_specs:
            if spec.needs.domains and not all(name in batch for name in needed):
                raise UserError(
                    f"{spec.name}: needs domain labels, but the batches do not have the entries "
                    f"{' and '.join(DOMAINS)}; train on the datasets of semilearn_ext.usb.get_datasets"
                )

    def call_hook(self, fn_name: str, hook_name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        result = super().call_hook(fn_name, hook_name, *args, **kwargs)
        if fn_name == "masking":
            self.recorder.see_masking(kwargs, result)
        return result

    def step_output(self, wants: Wants) -> StepOutput:
        """The output of the base in this step, with the images and views that a plug-in wants."""
        views = self.out_dict.get("step_views")
        return self.recorder.output(self, wants) if views is None else views.output(wants)

    def add_plugin_losses(self) -> None:
        """Add the plug-ins' weighted losses to ``out_dict["loss"]``, and log every term with its effective weight."""
        recorded: set[str] = set()
        with torch.autocast(next(self.model.parameters()).device.type, enabled=False):
            # All outputs before the first loss is added to that of the base.
            outputs = [
                (name, plugin, self.step_output(plugin.wants))
                for name, plugin in self.plugins.items()
                if plugin.wants is not None
            ]
            for name, plugin, output in outputs:
                for term, (weight, loss) in check_losses(name, plugin.losses(output), self.log_dict).items():
                    self._add_loss(term, self.plugin_weight * weight, loss)
                logs = check_logs(name, plugin.logs, self.log_dict, recorded)
                self.log_dict.update({f"train/{key}": value for key, value in logs.items()})
                recorded |= logs.keys()
        self.recorder.clear()

    def _add_loss(self, term: str, weight: float, loss: Tensor) -> None:
        self.log_dict[f"train/{term}"] = loss.detach()
        self.log_dict[f"train/{term}_weight"] = weight
        if weight:
            self.out_dict["loss"] = self.out_dict["loss"] + weight * loss
            if "train/total_loss" in self.log_dict:
                self.log_dict["train/total_loss"] = self.log_dict["train/total_loss"] + weight * loss.detach()

    # --- features of the labelled images, for plug-ins that use them once per epoch -------------------------

    @torch.no_grad()
    def labelled_features(self, mode: str) -> tuple[Tensor, Tensor, Tensor]:
        """Features (M, D), labels (M,) and domains (M,) of all labelled images; one forward pass per domain."""
        model = unwrap(self.model)
        device = next(model.parameters()).device
        features, labels, domains = [], [], []
        model.train(mode == "train")
        # The base algorithm must draw the same random numbers as without plug-ins, even in a network with dropout.
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            for number, (images, numbers) in enumerate(self.labelled_images()):
                with self.amp_cm():
                    features.append(classifier_inputs(model, images.to(device)))
                labels.append(numbers.to(device))
                domains.append(torch.full_like(labels[-1], number))
        model.train()
        return torch.cat(features), torch.cat(labels), torch.cat(domains)


class PluginHook(Hook):
    """Adds the plug-ins' losses before the backward pass. Registered before USB's update."""

    def before_run(self, algorithm: PluginMixin) -> None:
        if isinstance(algorithm.model, DataParallel) and len(algorithm.model.device_ids) > 1:
            raise UserError(
                "plug-ins do not support nn.DataParallel; start one process per GPU (USB: "
                "multiprocessing-distributed), or set gpu to a single one"
            )

    def before_train_epoch(self, algorithm: PluginMixin) -> None:
        for plugin in algorithm.plugins.values():
            if plugin.needs_labelled_features and algorithm.epoch_begins():
                plugin.before_epoch(*algorithm.labelled_features(plugin.labelled_features_mode))

    def after_train_step(self, algorithm: PluginMixin) -> None:
        algorithm.add_plugin_losses()


def general(args: Any, name: str) -> float:
    """A general setting from USB's arguments."""
    value: float = option_value(GENERAL[name], getattr(args, name, GENERAL[name].default), name)
    return value


def unwrap(model: nn.Module) -> nn.Module:
    """The network without the wrappers that USB's ``send_model_cuda`` adds."""
    if isinstance(model, DistributedDataParallel | DataParallel):
        module: nn.Module = model.module
        return module
    return model


def classifier_inputs(model: nn.Module, images: Tensor) -> Tensor:
    """The inputs (N, D) of the classifier, which differ from the features that SimMatch and CoMatch return."""
    captured: list[Tensor] = []
    handle = find_classifier(model).register_forward_pre_hook(lambda _, inputs: captured.append(inputs[0]))
    try:
        model(images)
    finally:
        handle.remove()
    return captured[0].float()


def _attach(model: nn.Module, plugins: nn.ModuleDict, head: ClassifierHead | None) -> None:
    model.plugins = plugins
    if head is not None:
        replace_classifier(model, head)


def _move_to_plugin_group(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], lr: float, weight_decay: float
) -> None:
    moved = set(parameters)
    for group in optimizer.param_groups:
        group["params"] = [parameter for parameter in group["params"] if parameter not in moved]
    optimizer.add_param_group({"name": "plugin", "params": parameters, "lr": lr, "weight_decay": weight_decay})
    # USB logs the learning rate of the last group, which must remain a group of the base.
    optimizer.param_groups.insert(-1, optimizer.param_groups.pop())


def _use_plugin_parameters(model: nn.Module, _: Any, output: Any) -> Any:
    """Make the output depend on the plug-ins' parameters without changing its value.

    DistributedDataParallel does not handle gradients of parameters that the forward pass does not use, and plug-ins use
    theirs afterwards.
    """
    if not isinstance(output, dict) or not torch.is_grad_enabled():
        return output
    touched = [parameter.sum() for parameter in model.get_submodule("plugins").parameters()]
    return {**output, "logits": output["logits"] + 0 * torch.stack(touched).sum()} if touched else output
