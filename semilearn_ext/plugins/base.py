"""The base class of plug-ins, and the output of a training step that plug-ins receive.

A plug-in gets one :class:`StepOutput` per step and returns named losses, which are added to the loss of the base
algorithm before the backward pass. It never calls the network, but declares with :class:`Wants` which images and views
it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError, shown
from semilearn_ext.nets.heads import ClassifierHead
from semilearn_ext.plugins import state


class ModelSpec(NamedTuple):
    """The sizes of the model that a plug-in is built for."""

    num_features: int
    """D."""
    num_classes: int
    """C."""
    num_domains: int
    """K, the number of source domains; 0 if the data have no domain labels."""


@dataclass(frozen=True)
class View:
    """The output of the network for one view of N images."""

    features: Tensor
    """(N, D), with gradient."""
    logits: Tensor
    """(N, C), with gradient."""


@dataclass(frozen=True)
class StepOutput:
    """The output of a base algorithm in one step."""

    labelled: View
    """The weak view of the M labelled images."""
    labels: Tensor
    """(M,)."""
    unlabelled: list[View]
    """The requested views of N unlabelled images, the weak one first."""
    prob: Tensor
    """(N, C): the base's confidences for the weak view, without gradient."""
    mask: Tensor
    """(N,) bool: whether the base is confident about the image."""
    class_weights: Tensor
    """(C, D): the weights of the base's classifier, with gradient."""
    domain: Tensor | None = None
    """(N,) number of the source domain; None without domain labels."""
    losses: Mapping[str, Tensor] = field(default_factory=dict)
    """The losses of the base with gradient: ``total_loss``, and in this package's own steps its terms, such as
    ``sup_loss``."""


@dataclass(frozen=True)
class Wants:
    """Which images and views a plug-in needs.

    In the SSDG benchmark's step the passes are separate, so this determines which of them are computed. In USB's step
    there is one pass for everything, and this only selects from its output.
    """

    views: str = "all"
    """``all``, ``weak`` or ``strong`` (every view except the weak one)."""
    batch: str = "mixed"
    """Images that batch norm normalises together: those of all domains (``mixed``) or of one domain (``domain``)."""
    labelled: bool = False
    """Whether ``unlabelled`` includes the labelled images, with their pseudo labels, as in the SSDG benchmark."""

    def __post_init__(self) -> None:
        for name, known in (("views", ("all", "weak", "strong")), ("batch", ("mixed", "domain"))):
            if (value := getattr(self, name)) not in known:
                raise UserError(f"Wants: {name}: {shown(value)} is not one of {', '.join(known)}")


class Plugin(nn.Module):
    """Adds losses to any base algorithm. A subclass implements :meth:`losses`; the rest is optional.

    Parameters and buffers are part of the model, so they are included in the optimizer (with the learning rate
    ``lr_plugin``), averaged weights and checkpoints. Other attributes, also of modules inside the plug-in, are saved in
    checkpoints too: tensors, numbers, strings, and lists or dicts of them. Any other type is an error.

    Attributes:
        options: the plug-in's options, by name.
        model: the sizes of the model.
        device: the device of the model.
        logs: detached scalars to record at evaluations; filled by :meth:`losses`.
    """

    wants: Wants | None = Wants()
    """The images and views that the plug-in needs; None if it adds no losses."""
    needs_labelled_features: ClassVar[bool] = False
    """Whether to call :meth:`before_epoch`, which costs one forward pass over all labelled images."""
    labelled_features_mode: str = "eval"
    """Mode of the network for that pass; ``train`` uses the batch statistics of each domain."""

    def __init__(self, options: Mapping[str, Any], model: ModelSpec) -> None:
        super().__init__()
        self.options = options
        self.model = model
        self.logs: dict[str, Tensor] = {}
        self.device = torch.device("cpu")

    def head(self) -> ClassifierHead | None:
        """A replacement for the classifier of the base, with the classifier's learning rate; also used at test time."""
        return None

    def before_epoch(self, features: Tensor, labels: Tensor, domain: Tensor | None) -> None:
        """Called at the start of every epoch, with the features (M, D) of all un-augmented labelled images."""

    def losses(self, step: StepOutput) -> dict[str, tuple[float, Tensor]]:
        """Named ``(weight, scalar)`` pairs; the weighted scalars are added to the loss of the base."""
        raise NotImplementedError

    def get_extra_state(self) -> dict[str, Any]:
        """Everything that may change and is neither a parameter nor a persistent buffer, for ``state_dict``."""
        return state.collect(self, ("options", "model", "device", "logs", "wants"), self.logs)

    def set_extra_state(self, saved: dict[str, Any]) -> None:
        state.restore(self, saved, self.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Plugin:
        # Called by ``to``: a plug-in without parameters could not tell its device otherwise.
        self.device = fn(torch.empty(0, device=self.device)).device
        super()._apply(fn, recurse)
        return self
