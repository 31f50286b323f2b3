"""The one interface that matters: a plug-in sees one step of any base algorithm and returns named losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from semilearn_ext.errors import UserError
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


class Plugin:
    """Adds losses to any base algorithm. A subclass implements :meth:`losses`; the rest is there when needed.

    Attributes:
        options: this plug-in's settings, by name.
        module: what :meth:`modules` gave; it lives in the model, so checkpoints and the optimizer know it.
        logs: detached scalars to be recorded at evaluations; filled by :meth:`losses`, never read in a step.
    """

    module: Any = None

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options
        self.logs: dict[str, Tensor] = {}

    def modules(self, feature_dim: int, num_classes: int) -> nn.Module | None:
        """Trainable parts of the plug-in's own. They learn at ``lr_plugin``; inference does without them."""
        return None

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


def attach(names: Sequence[str], options: Mapping[str, Any], model: Any, num_classes: int) -> dict[str, Plugin]:
    """Build plug-ins by name. What they train becomes ``model.plugins``, where optimizer and checkpoints find it."""
    plugins = {name: PLUGINS[name](options) for name in names}
    made = {name: plugin.modules(model.num_features, num_classes) for name, plugin in plugins.items()}
    if plugins:
        model.plugins = nn.ModuleDict({name: module for name, module in made.items() if module is not None})
    for name, module in made.items():
        plugins[name].module = module
    return plugins
