"""How a plug-in gets to see a base algorithm: through USB's own hooks, without a change to any base.

The confidences and the mask are what the base hands to, and gets from, its ``MaskingHook``. The features are what it
returns as ``feat``, except for SimMatch and CoMatch: theirs are projections, so what goes into the classifier is
taken instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from semilearn_ext.plugins.base import Labelled, Observation, Plugin
from semilearn_ext.usb import Hook

_HEADS = ("classifier", "fc", "head")


def find_classifier(model: nn.Module) -> nn.Linear:
    """The layer a network classifies with: the linear layer called classifier, fc or head."""
    for name, module in model.named_modules():
        if name.split(".")[-1] in _HEADS and isinstance(module, nn.Linear):
            return module
    raise TypeError(f"{type(model).__name__} has no linear layer called {', '.join(_HEADS)}")


class Observer:
    """Collects what one step of ``algorithm`` computes."""

    def __init__(self, algorithm: Any) -> None:
        self.classifier = find_classifier(algorithm.model)
        self.projects = algorithm.traits.projected_features
        self.forget()
        if self.projects:
            self.classifier.register_forward_pre_hook(self._keep_features)

    def forget(self) -> None:
        self.masking: tuple[dict[str, Any], Tensor] | None = None
        self.batch: dict[str, Tensor] = {}
        self.inputs: Tensor | None = None

    def _keep_features(self, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if self.inputs is None:
            self.inputs = inputs[0]

    def see_masking(self, arguments: dict[str, Any], mask: Tensor) -> None:
        """The first mask of a step is that of the unlabelled images; DeFixMatch makes another."""
        if self.masking is None:
            self.masking = (arguments, mask)

    def observation(self, out_dict: dict[str, Any]) -> Observation:
        assert self.masking is not None
        arguments, mask = self.masking
        prob = arguments["logits_x_ulb"].detach()
        if arguments.get("softmax_x_ulb", True):
            prob = prob.softmax(1)
        labelled, views = self._features(out_dict["feat"], len(prob))
        return Observation(
            views=views,
            prob=prob,
            # A soft weight is 1 exactly where the base trusts an image fully, which is what a threshold means.
            confident=mask.detach() >= 1,
            domain=self.batch.get("d_ulb"),
            labelled=Labelled(labelled, self.batch["y_lb"], self.batch.get("d_lb")),
            classifier=self.classifier.weight,
        )

    def _features(self, feat: dict[str, Any], images: int) -> tuple[Tensor, list[Tensor]]:
        if self.projects:
            assert self.inputs is not None
            count = len(self.batch["y_lb"])
            return self.inputs[:count], list(self.inputs[count:].split(images))
        strong = feat.get("x_ulb_s", [])
        return feat["x_lb"], [feat["x_ulb_w"], *(strong if isinstance(strong, list) else [strong])]


class PluginHook(Hook):
    """Adds one plug-in's losses to the base's before the backward pass. Registered ahead of the update."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin

    def after_train_step(self, algorithm: Any) -> None:
        seen = algorithm.observer.observation(algorithm.out_dict)
        with torch.autocast(algorithm.device.type, enabled=False):
            losses = self.plugin.losses(seen)
        total = algorithm.out_dict["loss"]
        for name, (weight, loss) in losses.items():
            total = total + weight * loss
            algorithm.log_dict[f"train/{name}"] = loss.detach()
        algorithm.out_dict["loss"] = total
        algorithm.log_dict.update({f"train/{name}": value for name, value in self.plugin.logs.items()})


class ForgetHook(Hook):
    """Lets go of a step's tensors once it is over, and of what an evaluation in between left."""

    def before_train_step(self, algorithm: Any) -> None:
        algorithm.observer.forget()

    def after_train_step(self, algorithm: Any) -> None:
        algorithm.observer.forget()
