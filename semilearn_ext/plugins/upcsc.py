"""UPCSC: unlabelled proxy-based contrastive learning (UPC) and surrogate class learning (SC).

Lee, Hwang and Kwak, "Unlocking the Potential of Unlabeled Data in Semi-Supervised Domain Generalization" (CVPR 2025),
section Method. Every view that the base makes of an unlabelled image takes part; its confidences, pseudo label and
whether it is confident are those of the weak view. No domain labels are used. With several processes each contrasts
the images of its own share.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from semilearn_ext.losses import upcsc_loss
from semilearn_ext.plugins.base import Observation, Plugin, register

_FORM_OPTIONS = ("form", "surrogate", "unconfident_negatives")


class _Contrast(Plugin):
    """Projects features and class weights, and computes both losses; subclasses say which count."""

    parts: tuple[str, ...]

    def modules(self, feature_dim: int, num_classes: int) -> nn.Module:
        """p_f, a linear layer with bias, and p_c, one without (as in the released code)."""
        width = self.options["projector_dim"] or feature_dim
        return nn.ModuleDict(
            {"feature": nn.Linear(feature_dim, width), "proxy": nn.Linear(feature_dim, width, bias=False)}
        )

    def losses(self, seen: Observation) -> dict[str, tuple[float, Tensor]]:
        views = self._chosen(seen.views)
        z = normalize(self.module["feature"](torch.cat(views).float()), dim=1)
        w = normalize(self.module["proxy"](seen.classifier.float()), dim=1)
        out = upcsc_loss(
            z,
            w,
            seen.prob.float().repeat(len(views), 1),
            seen.confident.repeat(len(views)),
            **{name: self.options[name] for name in _FORM_OPTIONS if name in self.options},
        )
        self.logs = {
            "confident_share": out.confident_share,
            "candidates": out.candidates,
            "negative_share": out.negative_share,
        }
        losses = {"upc": out.upc, "sc": out.sc}
        return {name: (self.options[f"{name}_weight"], losses[name]) for name in self.parts}

    def _chosen(self, views: list[Tensor]) -> list[Tensor]:
        if self.options["views"] == "weak":
            return views[:1]
        return views[1:] if self.options["views"] == "strong" and len(views) > 1 else views


@register("upc")
class UPC(_Contrast):
    """Equation 2 alone."""

    parts = ("upc",)


@register("sc")
class SC(_Contrast):
    """Equations 3 and 4 alone."""

    parts = ("sc",)


@register("upcsc")
class UPCSC(_Contrast):
    """The whole method: UPC + SC."""

    parts = ("upc", "sc")
