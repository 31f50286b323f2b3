"""What a plug-in is, and what it sees of a training step.

A plug-in gets one :class:`StepOutput` per step and returns named losses, which are added to the base's loss before the
backward pass. It never calls the network: it declares with :class:`Wants` which images and views it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError, shown
from semilearn_ext.nets.heads import ClassifierHead


class ModelSpec(NamedTuple):
    """The sizes a plug-in is built for."""

    num_features: int
    """D."""
    num_classes: int
    """C."""
    num_domains: int
    """K source domains; 0 where the data have no domain labels."""


@dataclass(frozen=True)
class View:
    """One view of N images after the network."""

    features: Tensor
    """(N, D), with gradient."""
    logits: Tensor
    """(N, C), with gradient."""


@dataclass(frozen=True)
class StepOutput:
    """What a base algorithm computed in one step."""

    labelled: View
    """The weak view of the M labelled images."""
    labels: Tensor
    """(M,)."""
    unlabelled: list[View]
    """The views that the plug-in wants of N unlabelled images, the weak one first."""
    prob: Tensor
    """(N, C): the base's own confidences for the weak view, without gradient."""
    mask: Tensor
    """(N,) bool: the images that the base is confident of."""
    class_weights: Tensor
    """(C, D): the weights of the base's classifier, with gradient."""
    domain: Tensor | None = None
    """(N,) number of the source domain; None where there are no domain labels."""
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    """The base's own losses, by name, where it reports them as tensors."""


@dataclass(frozen=True)
class Wants:
    """Which images and views a plug-in needs.

    In the SSDG benchmark's step the passes are separate, so this decides which of them are computed; in USB's step one
    pass serves everything, and this only selects.
    """

    views: str = "all"
    """``all``, ``weak`` or ``strong`` (every view but the weak one)."""
    batch: str = "mixed"
    """``mixed``: batch norm sees the unlabelled images of all domains together; ``domain``: of one domain at a time."""
    labelled: bool = False
    """The labelled images are part of ``unlabelled``, with their pseudo labels, as in the SSDG benchmark."""


class Plugin(nn.Module):
    """Adds losses to any base algorithm. A subclass implements :meth:`losses`; the rest is optional.

    Parameters and buffers live in the model, so the optimizer (at ``lr_plugin``), averaged weights and checkpoints know
    them. Other attributes are saved too: tensors, numbers, strings, and lists or dicts of them. Anything else is an
    error when a checkpoint is written.

    Attributes:
        options: the plug-in's options, by name.
        model: the sizes of the model.
        logs: detached scalars to record at evaluations; filled by :meth:`losses`.
    """

    wants: Wants | None = Wants()
    """None: the plug-in adds no losses."""
    needs_labelled_features: ClassVar[bool] = False
    """Whether :meth:`before_epoch` is called. The features cost one forward pass over all labelled images."""
    labelled_features_mode: str = "eval"
    """Mode of the network for that pass; ``train`` makes one pass per domain with batch statistics."""

    def __init__(self, options: Mapping[str, Any], model: ModelSpec) -> None:
        super().__init__()
        self.options = options
        self.model = model
        self.logs: dict[str, Tensor] = {}

    def head(self) -> ClassifierHead | None:
        """A classifier that replaces the base's. It learns at the classifier's rate and is used at test."""
        return None

    def before_epoch(self, features: Tensor, labels: Tensor, domain: Tensor | None) -> None:
        """Called when an epoch begins, with the features (M, D) of all un-augmented labelled images."""

    def losses(self, step: StepOutput) -> dict[str, tuple[float, Tensor]]:
        """Named ``(weight, scalar)`` pairs; the weighted scalars are added to the base's loss."""
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, Any]:
        """Attributes that are neither parameters, buffers nor modules, for ``state_dict``."""
        own = {name: value for name, value in vars(self).items() if name not in _NOT_STATE}
        return {name: _saveable(value, f"{type(self).__name__}.{name}") for name, value in own.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        device = next(chain(self.parameters(), self.buffers()), torch.empty(0)).device
        for name, value in state.items():
            setattr(self, name, value.to(device) if isinstance(value, Tensor) else value)


def check_losses(owner: str, losses: Any, logged: Mapping[str, Any]) -> dict[str, tuple[float, Tensor]]:
    """What the plug-in ``owner`` returned, or a UserError. A term may not hide another one in the log."""
    if not isinstance(losses, dict):
        raise UserError(f"plug-in {owner!r}: losses must return a dict of (weight, scalar) pairs, got {shown(losses)}")
    for term, pair in losses.items():
        if not _is_weighted_tensor(pair) or pair[1].ndim:
            given = f"a tensor of shape {tuple(pair[1].shape)}" if _is_weighted_tensor(pair) else shown(pair)
            raise UserError(f"plug-in {owner!r}: loss {term!r} must be a pair (weight, scalar tensor), got {given}")
        if f"train/{term}" in logged:
            raise UserError(
                f"plug-in {owner!r}: loss {term!r} has the name of another logged loss; choose another name"
            )
    return losses


def _is_weighted_tensor(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[1], Tensor)


_NOT_STATE = {*vars(nn.Module()), "options", "model", "logs", "wants"}


def _saveable(value: Any, where: str) -> Any:
    """A copy of ``value`` in types that a checkpoint can hold."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return type(value)(_saveable(item, where) for item in value)
    if isinstance(value, dict):
        return {key: _saveable(item, where) for key, item in value.items()}
    raise UserError(
        f"{where}: {type(value).__name__} is a type that cannot be saved in a checkpoint; use tensors, numbers, lists "
        f"or dicts"
    )
