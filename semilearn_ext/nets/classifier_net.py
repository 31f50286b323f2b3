"""A backbone and a linear classifier in the shape USB's algorithms expect of a network."""

from __future__ import annotations

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
