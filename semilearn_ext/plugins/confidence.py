"""Compute which images a base algorithm is confident about, by its own rule but without changing its state.

Every USB algorithm with a threshold computes its mask in a ``MaskingHook``, which may update itself at the same time
(FreeMatch's thresholds, FlexMatch's counts). A copy of the hook is therefore called, with a wrapper of the algorithm
that keeps all writes to itself.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from semilearn_ext.plugins.usb_protocol import UsbAlgorithm
from semilearn_ext.semilearn_api import DashThresholdingHook


class ReadOnlyView:
    """Reads attributes from ``target``, unless they are overridden, and keeps writes to itself."""

    def __init__(self, target: Any, **overrides: Any) -> None:
        self.__dict__.update(overrides, _target=target)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_target"], name)


@torch.no_grad()
def confidence_mask(
    algorithm: UsbAlgorithm, logits: torch.Tensor, labelled_logits: torch.Tensor
) -> torch.Tensor | None:
    """The weight (N,) that the base would give to each unlabelled image; None if it has no mask. Most are 0 or 1.

    Args:
        logits: (N, C) of all unlabelled images, in the order of ``idx_ulb``.
        labelled_logits: (M, C) of labelled images, on which AdaMatch's threshold depends.
    """
    hook = algorithm.hooks_dict.get("MaskingHook")
    if hook is None:
        return None
    view = ReadOnlyView(algorithm, distributed=False)
    prob, labelled = logits.softmax(1), labelled_logits.softmax(1)
    if "DistAlignHook" in algorithm.hooks_dict:
        align = copy.deepcopy(algorithm.hooks_dict["DistAlignHook"])
        prob = align.dist_align(view, probs_x_ulb=prob, probs_x_lb=labelled)
    # Dash computes a loss from logits; all others use probabilities.
    is_dash = isinstance(hook, DashThresholdingHook)
    return copy.deepcopy(hook).masking(
        view,
        logits_x_ulb=logits if is_dash else prob,
        logits_x_lb=labelled,
        idx_ulb=torch.arange(len(logits), device=logits.device),
        softmax_x_ulb=False,
        softmax_x_lb=False,
    )
