"""UPCSC: unlabelled proxy-based contrastive learning (UPC) and surrogate class learning (SC).

Lee, Hwang and Kwak, "Unlocking the Potential of Unlabeled Data in Semi-Supervised Domain Generalization" (CVPR 2025,
https://arxiv.org/abs/2503.13915), equations 2 to 4. All views of an unlabelled image that the base computes are used,
with the confidences, pseudo label and mask of its weak view. Domain labels are not used. With several processes, images
are contrasted across all processes, as in one process with the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from semilearn_ext.distributed import gather_rows
from semilearn_ext.losses import upcsc_loss
from semilearn_ext.plugins.base import ModelSpec, Plugin, StepOutput, Wants

_LOSS_OPTIONS = ("loss_form", "surrogate", "unconfident_negatives", "temperature")


class _Contrast(Plugin):
    """Projects features and class weights, and computes both losses; subclasses select which are used.

    As in the released code, p_f is a linear layer with bias and p_c is one without.
    """

    parts: ClassVar[tuple[str, ...]]

    def __init__(self, options: Mapping[str, Any], model: ModelSpec) -> None:
        super().__init__(options, model)
        width = options["projector_dim"] or model.num_features
        self.feature_projector = nn.Linear(model.num_features, width)
        self.proxy_projector = nn.Linear(model.num_features, width, bias=False)
        self.wants = Wants(views=options["contrast_views"])

    def losses(self, step: StepOutput) -> dict[str, tuple[float, Tensor]]:
        dtype = self.proxy_projector.weight.dtype
        views = [gather_rows(self._project(view.features.to(dtype))) for view in step.unlabelled]
        terms = upcsc_loss(
            torch.cat(views),
            normalize(self.proxy_projector(step.class_weights.to(dtype)), dim=1),
            gather_rows(step.prob.to(dtype)).repeat(len(views), 1),
            gather_rows(step.mask.to(dtype)).bool().repeat(len(views)),
            **{name: self.options[name] for name in _LOSS_OPTIONS if name in self.options},
        )
        self.logs = {
            "confident_share": terms.confident_share,
            "candidates": terms.candidates,
            "negative_share": terms.negative_share,
        }
        values = {"upc": terms.upc, "sc": terms.sc}
        return {name: (self.options[f"{name}_weight"], values[name]) for name in self.parts}

    def _project(self, features: Tensor) -> Tensor:
        return normalize(self.feature_projector(features), dim=1)


class UPC(_Contrast):
    """UPC only (equation 2)."""

    parts = ("upc",)


class SC(_Contrast):
    """SC only (equations 3 and 4)."""

    parts = ("sc",)


class UPCSC(_Contrast):
    """The complete method, UPC + SC."""

    parts = ("upc", "sc")
