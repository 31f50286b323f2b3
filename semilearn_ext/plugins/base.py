"""The one interface that matters: a plug-in sees one step of any base algorithm and returns named losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import replace_classifier
from semilearn_ext.settings.methods import PLUGIN_OPTIONS
from semilearn_ext.settings.usb_options import Option


@dataclass(frozen=True)
class Labelled:
    """The labelled half of a step: M images."""

    features: Tensor
    """(M, D), with gradient."""
    labels: Tensor
    """(M,)."""
    domain: Tensor | None
    """(M,) number of the source domain; None where there are no domain labels."""


class WeakViews(NamedTuple):
    """The weak views of some images, with what the base thinks of them."""

    features: Tensor
    """(N, D), with gradient."""
    prob: Tensor
    """(N, C), without gradient."""
    confident: Tensor
    """(N,) bool."""
    domain: Tensor
    """(N,) number of the source domain."""


@dataclass(frozen=True)
class Observation:
    """What a base algorithm computed in one step, on N unlabelled images."""

    views: list[Tensor]
    """The features (N, D) of every view of the unlabelled images, the weak one first, with gradient."""
    prob: Tensor
    """(N, C): the base's own confidences of the weak view, without gradient."""
    confident: Tensor
    """(N,) bool: the base's own decision."""
    domain: Tensor | None
    """(N,) number of the source domain; None where there are no domain labels."""
    labelled: Labelled
    classifier: Tensor
    """(C, D): the weight the base classifies with, with gradient."""
    judge: Callable[[Tensor], tuple[Tensor, Tensor]]
    """The base's own confidences (M, C) and decision (M,) for features (M, D)."""
    labelled_among_views: bool = False
    """The base treats its labelled images as unlabelled ones too: they are part of ``views`` already."""

    def weak_of_all(self) -> WeakViews:
        """The weak views of labelled and unlabelled images together, for plug-ins that use domain labels."""
        assert self.domain is not None
        assert self.labelled.domain is not None
        unlabelled = WeakViews(self.views[0], self.prob, self.confident, self.domain)
        if self.labelled_among_views:
            return unlabelled
        labelled = WeakViews(self.labelled.features, *self.judge(self.labelled.features.detach()), self.labelled.domain)
        return WeakViews(*(torch.cat(pair) for pair in zip(labelled, unlabelled, strict=True)))


class Scene(NamedTuple):
    """The sizes a plug-in is built for."""

    num_features: int
    num_classes: int
    num_domains: int


class Plugin:
    """Adds losses to any base algorithm. A subclass implements :meth:`losses`; the rest is there when needed.

    Attributes:
        options: this plug-in's settings, by name.
        scene: how many features, classes and source domains there are.
        module: what :meth:`modules` gave; it lives in the model, so checkpoints and the optimizer know it.
        logs: detached scalars to be recorded at evaluations; filled by :meth:`losses`, never read in a step.
    """

    module: Any = None

    def __init__(self, options: Mapping[str, Any], scene: Scene) -> None:
        self.options = options
        self.scene = scene
        self.logs: dict[str, Tensor] = {}

    @classmethod
    def check(cls, num_classes: int, num_domains: int) -> None:
        """Raise a UserError, before anything is trained or written, where the plug-in cannot work."""

    def modules(self, feature_dim: int, num_classes: int) -> nn.Module | None:
        """Trainable parts of the plug-in's own. They learn at ``lr_plugin``; inference does without them."""
        return None

    def classifier(self) -> nn.Module | None:
        """A classifier to put in the place of the base's. It learns at ``lr_classifier`` and is used at test."""
        return None

    def before_epoch(self, labelled: Labelled) -> None:
        """Called when an epoch begins, with the features of all labelled images, un-augmented."""

    needs_labelled_features: ClassVar[bool] = False
    """Whether :meth:`before_epoch` is to be called; the features cost a forward pass."""

    def losses(self, seen: Observation) -> dict[str, tuple[float, Tensor]]:
        """Named ``(weight, scalar)`` pairs; the weighted scalars are added to the base's loss."""
        raise NotImplementedError


PLUGINS: dict[str, type[Plugin]] = {}


def register(name: str, options: Mapping[str, Option] | None = None) -> Any:
    """Class decorator: ``algorithm: <base>_<name>`` is then the base with this plug-in."""
    if "_" in name:
        raise UserError(f"plug-in {name!r}: a name without underscores is needed; they separate plug-ins")

    def add(cls: type[Plugin]) -> type[Plugin]:
        PLUGINS[name] = cls
        PLUGIN_OPTIONS.setdefault(name, dict(options or {}))
        return cls

    return add


def attach(names: Sequence[str], options: Mapping[str, Any], model: Any, scene: Scene) -> dict[str, Plugin]:
    """Build plug-ins by name. What they train becomes ``model.plugins``, where optimizer and checkpoints find it."""
    plugins = {name: PLUGINS[name](options, scene) for name in names}
    made = {name: plugin.modules(scene.num_features, scene.num_classes) for name, plugin in plugins.items()}
    if plugins:
        model.plugins = nn.ModuleDict({name: module for name, module in made.items() if module is not None})
    for name, plugin in plugins.items():
        plugin.module = made[name]
        classifier = plugin.classifier()
        if classifier is not None:
            replace_classifier(model, classifier)
    return plugins


def check(names: Sequence[str], num_classes: int, num_domains: int) -> None:
    """Refuse plug-ins that cannot work with so many classes and source domains."""
    for name in names:
        PLUGINS[name].check(num_classes, num_domains)
