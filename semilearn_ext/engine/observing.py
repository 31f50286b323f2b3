"""How a plug-in gets to see a base algorithm: through USB's own hooks, without a change to any base.

The confidences and the mask are what the base hands to, and gets from, its ``MaskingHook``. The features are what it
returns as ``feat``, except for SimMatch and CoMatch: theirs are projections, so what goes into the classifier is
taken instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from semilearn_ext.engine.confidence import would_keep
from semilearn_ext.engine.evaluation import predict
from semilearn_ext.nets.classifier_net import find_classifier, pseudo_logits
from semilearn_ext.plugins.base import Labelled, Observation, Plugin
from semilearn_ext.usb import Hook


class Observer:
    """Collects what one step of ``algorithm`` computes."""

    def __init__(self, algorithm: Any) -> None:
        self.algorithm = algorithm
        self.classifier = find_classifier(algorithm.model)
        self.domains = len(algorithm.context.data.sources)
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
            domain=self._domain(),
            labelled=Labelled(labelled, self.batch["y_lb"], self.batch.get("d_lb")),
            classifier=self.classifier.weight,
            judge=self._judge,
            labelled_among_views=self.algorithm.traits.labelled_too,
        )

    def _domain(self) -> Tensor | None:
        labelled, unlabelled = self.batch.get("d_lb"), self.batch.get("d_ulb")
        if self.algorithm.traits.labelled_too and labelled is not None and unlabelled is not None:
            return join_by_domain(labelled, unlabelled, self.domains)
        return unlabelled

    @torch.no_grad()
    def _judge(self, features: Tensor) -> tuple[Tensor, Tensor]:
        logits = pseudo_logits(self.classifier, features, self.domains)
        kept = would_keep(self.algorithm, logits, logits)
        assert kept is not None
        return logits.softmax(1), kept >= 1

    def _features(self, feat: dict[str, Any], images: int) -> tuple[Tensor, list[Tensor]]:
        if self.projects:
            assert self.inputs is not None
            count = len(self.batch["y_lb"])
            return self.inputs[:count], list(self.inputs[count:].split(images))
        strong = feat.get("x_ulb_s", [])
        return feat["x_lb"], [feat["x_ulb_w"], *(strong if isinstance(strong, list) else [strong])]


def join_by_domain(labelled: Tensor, unlabelled: Tensor, domains: int) -> Tensor:
    """Labelled and unlabelled images, each domain after domain, as one batch, domain after domain."""
    pairs = zip(labelled.chunk(domains), unlabelled.chunk(domains), strict=True)
    return torch.cat([part for pair in pairs for part in pair])


class PluginHook(Hook):
    """Adds one plug-in's losses to the base's before the backward pass. Registered ahead of the update."""

    def __init__(self, plugin: Plugin) -> None:
        self.plugin = plugin

    def before_train_epoch(self, algorithm: Any) -> None:
        # A run that goes on in the middle of an epoch has what its beginning made in the checkpoint.
        if self.plugin.needs_labelled_features and algorithm.it % algorithm.num_iter_per_epoch == 0:
            self.plugin.before_epoch(labelled_features(algorithm))

    def after_train_step(self, algorithm: Any) -> None:
        seen = algorithm.observer.observation(algorithm.out_dict)
        with torch.autocast(algorithm.device.type, enabled=False):
            losses = self.plugin.losses(seen)
        total = algorithm.out_dict["loss"]
        for name, (weight, loss) in losses.items():
            total = total + algorithm.settings.plugin_weight * weight * loss
            algorithm.log_dict[f"train/{name}"] = loss.detach()
        algorithm.out_dict["loss"] = total
        algorithm.log_dict.update({f"train/{name}": value for name, value in self.plugin.logs.items()})


def labelled_features(algorithm: Any) -> Labelled:
    """Features of all labelled images, un-augmented, by the network as it is, in eval mode."""
    images = algorithm.eval_sets["labeled"]
    algorithm.model.eval()
    features = predict(algorithm, images, "feat", algorithm.model.num_features).clone()
    algorithm.model.train()
    domain = algorithm.context.data.domains[images.positions]
    return Labelled(features, images.labels.to(features.device), domain.to(features.device))


class ForgetHook(Hook):
    """Lets go of a step's tensors once it is over, and of what an evaluation in between left."""

    def before_train_step(self, algorithm: Any) -> None:
        algorithm.observer.forget()

    def after_train_step(self, algorithm: Any) -> None:
        algorithm.observer.forget()
