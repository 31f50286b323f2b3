"""Code shared by our own training steps: FixMatch's pseudo labels, and the views that plug-ins select from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from semilearn_ext.plugins.base import StepOutput, View, Wants
from semilearn_ext.plugins.recorder import select_views
from semilearn_ext.semilearn_api import FixMatch


@dataclass(frozen=True)
class Images:
    """N images: their views (the weak one first), the base's confidences and mask, and their domains."""

    views: list[View]
    prob: Tensor
    mask: Tensor
    domain: Tensor


@dataclass(frozen=True)
class StepViews:
    """The views of one step, for the kinds of images that its plug-ins want."""

    labelled: View
    labels: Tensor
    class_weights: Tensor
    images: dict[tuple[str, bool], Images]
    """By ``(wants.batch, wants.labelled)``."""
    losses: dict[str, Tensor] = field(default_factory=dict)
    """The losses of the base, which :func:`step_result` adds."""

    def output(self, wants: Wants) -> StepOutput:
        images = self.images[wants.batch, wants.labelled]
        return StepOutput(
            labelled=self.labelled,
            labels=self.labels,
            unlabelled=select_views(images.views, wants.views),
            prob=images.prob,
            mask=images.mask,
            class_weights=self.class_weights,
            domain=images.domain,
            losses=self.losses,
        )


def joined(first: Images, second: Images) -> Images:
    """The rows of both, for the views that both have."""
    views = [
        View(torch.cat([a.features, b.features]), torch.cat([a.logits, b.logits]))
        for a, b in zip(first.views, second.views, strict=False)
    ]
    return Images(
        views,
        torch.cat([first.prob, second.prob]),
        torch.cat([first.mask, second.mask]),
        torch.cat([first.domain, second.domain]),
    )


def confidences_mask(algorithm: FixMatch, prob: Tensor) -> Tensor:
    """(N,): whether the confidences (N, C) of an image pass FixMatch's threshold."""
    mask: Tensor = algorithm.call_hook("masking", "MaskingHook", logits_x_ulb=prob, softmax_x_ulb=False)
    return mask


def pseudo_labels(algorithm: FixMatch, prob: Tensor) -> tuple[Tensor, Tensor]:
    """FixMatch's targets and mask for confidences (N, C)."""
    mask = confidences_mask(algorithm, prob)
    target: Tensor = algorithm.call_hook(
        "gen_ulb_targets",
        "PseudoLabelingHook",
        logits=prob,
        use_hard_label=algorithm.use_hard_label,
        T=algorithm.T,
        softmax=False,
    )
    return target, mask


def step_result(
    algorithm: FixMatch, sup_loss: Tensor, losses: list[Tensor], mask: Tensor, views: StepViews
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The return value of USB's ``train_step``, from the losses of the strong view and, for StyleMatch, the style view.

    Logged numbers stay on the device until they are recorded.
    """
    total = sup_loss + algorithm.lambda_u * sum(losses)
    terms = {"sup_loss": sup_loss, "unsup_loss": losses[0], "total_loss": total}
    if len(losses) > 1:
        terms["style_loss"] = losses[1]
    logged = {**terms, "util_ratio": mask.float().mean()}
    return (
        algorithm.process_out_dict(loss=total, step_views=replace(views, losses=terms)),
        algorithm.process_log_dict(**{name: value.detach() for name, value in logged.items()}),
    )
