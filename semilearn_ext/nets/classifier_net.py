"""A backbone with a linear classifier, with the interface that USB's algorithms expect of a network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from semilearn_ext.errors import UserError


class ClassifierNet(nn.Module):
    """``forward(x)`` returns ``{"logits": (N, C), "feat": (N, D)}``, like USB's networks.

    Args:
        backbone: maps images (N, 3, H, W) to features (N, D).
        num_features: D.
        num_classes: C.
        bias: whether the classifier has a bias; the released UPCSC on FixMatch has none.
    """

    def __init__(self, backbone: nn.Module, num_features: int, num_classes: int, bias: bool = True) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features = num_features
        self.classifier = nn.Linear(num_features, num_classes, bias=bias)

    def forward(self, x: torch.Tensor, only_fc: bool = False, only_feat: bool = False, **_: Any) -> Any:
        if only_fc:
            return self.classifier(x)
        feat = self.backbone(x)
        if only_feat:
            return feat
        return {"logits": self.classifier(feat), "feat": feat}


_NAMES = ("classifier", "fc", "head")


def find_classifier(model: nn.Module) -> nn.Module:
    """The classification layer of a network; its ``weight`` is (C, D)."""
    return model.get_submodule(_classifier_name(model))


def replace_classifier(model: nn.Module, classifier: nn.Module) -> None:
    parent, _, name = _classifier_name(model).rpartition(".")
    setattr(model.get_submodule(parent), name, classifier)


def class_weights(classifier: nn.Module) -> torch.Tensor:
    """(C, D): the class proxies, with gradient."""
    weight = classifier.weight
    assert isinstance(weight, torch.Tensor)
    return weight


def _classifier_name(model: nn.Module) -> str:
    """The name of the module called classifier, fc or head, if it has a weight, or of the last linear layer inside."""
    inside = ""
    for name, module in model.named_modules():
        parts = name.split(".")
        if parts[-1] in _NAMES and getattr(module, "weight", None) is not None:
            return name
        if set(parts) & set(_NAMES) and isinstance(module, nn.Linear):
            inside = name
    if not inside:
        raise UserError(
            f"{type(model).__name__}: plug-ins need the network's classifier, a linear layer called "
            f"{', '.join(_NAMES[:-1])} or {_NAMES[-1]}, but there is none; rename it"
        )
    return inside


def parameter_role(name: str) -> str:
    """The role of a parameter, ``backbone`` or ``classifier``, which determines its learning rate.

    Heads that USB's algorithms add (a projection, a rotation classifier) are trained from scratch like the classifier
    and use its learning rate.
    """
    return "classifier" if set(name.split(".")) & {*_NAMES, "mlp_proj", "rot_classifier"} else "backbone"
