"""A backbone and a linear classifier in the shape USB's algorithms expect of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class ClassifierNet(nn.Module):
    """``forward(x)`` gives ``{"logits": (N, C), "feat": (N, D)}``, as USB's networks do.

    Args:
        backbone: images (N, 3, H, W) to features (N, D).
        num_features: D.
        num_classes: C.
    """

    def __init__(self, backbone: nn.Module, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.num_features = num_features
        self.classifier = nn.Linear(num_features, num_classes)

    def forward(self, x: torch.Tensor, only_fc: bool = False, only_feat: bool = False, **_: Any) -> Any:
        if only_fc:
            return self.classifier(x)
        feat = self.backbone(x)
        if only_feat:
            return feat
        return {"logits": self.classifier(feat), "feat": feat}


_HEADS = ("classifier", "fc", "head")


def find_classifier(model: nn.Module) -> Any:
    """The layer a network classifies with: the one called classifier, fc or head that has a weight (C, D)."""
    return model.get_submodule(_classifier_name(model))


def replace_classifier(model: nn.Module, classifier: nn.Module) -> None:
    parent, _, name = _classifier_name(model).rpartition(".")
    setattr(model.get_submodule(parent), name, classifier)


def pseudo_logits(classifier: nn.Module, feat: torch.Tensor, domains: int) -> torch.Tensor:
    """Logits for pseudo labels: without the noise that some classifiers train with. Domain after domain."""
    return by_domain(getattr(classifier, "pseudo", classifier), feat, domains)


def by_domain(function: Callable[[torch.Tensor], torch.Tensor], batch: torch.Tensor, domains: int) -> torch.Tensor:
    """``function`` of each domain's equal share of a batch that lies domain after domain."""
    return torch.cat([function(part) for part in batch.chunk(domains)])


def _classifier_name(model: nn.Module) -> str:
    for name, module in model.named_modules():
        if name.split(".")[-1] in _HEADS and getattr(module, "weight", None) is not None:
            return name
    raise TypeError(f"{type(model).__name__} has no layer with weights called {', '.join(_HEADS)}")


def parameter_role(name: str) -> str:
    """``backbone``, ``classifier`` or ``plugin``, by a parameter's name, for its learning rate.

    Heads that USB's algorithms add on top (a projection, a rotation classifier) start from scratch like the
    classifier and learn at its rate.
    """
    parts = set(name.split("."))
    if "plugins" in parts:
        return "plugin"
    if parts & {"classifier", "fc", "head", "mlp_proj", "rot_classifier"}:
        return "classifier"
    return "backbone"
