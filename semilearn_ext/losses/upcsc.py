"""UPC and SC, the two contrastive losses of "Unlocking the Potential of Unlabeled Data in Semi-Supervised Domain
Generalization" (CVPR 2025).

The paper's four kinds of negatives are one. Let a view's possible classes be its pseudo label alone where it is
confident, and its candidates, the classes with a confidence above 1 / C, where it is not. Then two views are
negatives of each other exactly when they have no possible class in common: one matrix product tells all pairs.
A view's positive is a weighted sum of class proxies in both losses, so both are rows of the same (V, V) problem.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from semilearn_ext.errors import did_you_mean

FORMS = ("paper", "reference")
SURROGATES = ("weighted", "average", "top1")
REFERENCE_FLOOR = 1e-6


class UPCSCTerms(NamedTuple):
    """The two losses, and what a log wants to know; all are 0-d tensors, and only the losses carry a gradient."""

    upc: Tensor
    sc: Tensor
    confident_share: Tensor
    """Share of the views that are confident."""
    candidates: Tensor
    """Mean number of candidate classes of an unconfident view; 0 without such views."""
    negative_share: Tensor
    """Share of the V (V - 1) ordered pairs that are used as negatives."""


def upcsc_loss(
    z: Tensor,
    w: Tensor,
    prob: Tensor,
    confident: Tensor,
    loss_form: str = "paper",
    surrogate: str = "weighted",
    unconfident_negatives: bool = True,
    temperature: float = 1.0,
) -> UPCSCTerms:
    """Unlabeled proxy-based contrastive loss (UPC) and surrogate class loss (SC); the method's loss is their sum.

    Every view i has the loss ``-log(exp(p) / (exp(p) + R))``, p its similarity to its positive and R the sum of
    ``exp(z_i . z_j)`` over its negatives j, itself never among them. With C_i the candidates of view i:

    - UPC (equation 2), confident i. Positive: the proxy of its pseudo label. Negatives: confident views with
      another pseudo label, unconfident views whose candidates do not include i's pseudo label.
    - SC (equations 3 and 4), unconfident i. Positive: the sum of its candidates' proxies weighted by
      confidence, not normalised again. Negatives: confident views whose pseudo label is not in C_i, unconfident
      views whose candidates share no class with C_i.

    ``loss_form="paper"`` takes one mean over the confident views and one over the unconfident.
    ``loss_form="reference"`` is what the authors released, and deviates twice: ``upc + sc`` is one mean over all V
    views, and a negative whose similarity is below 1e-6 is dropped (so it neither counts nor gets a gradient).

    Without a confident (unconfident) view, UPC (SC) is 0 and its gradient is 0, as is a view's loss without
    negatives. A view all of whose confidences are 1 / C has no candidates: its surrogate is the zero vector, of
    similarity 0, and every other view is its negative, other views of the same image included.

    Computed in float32, or in float64 where z or w are, under autocast too. All is finite where ``z @ z.T`` and
    ``z @ w.T`` are. Costs O(V V + V C) besides matrix products, one (V, V) tensor of floats at a time. Never
    waits for the device.

    Args:
        z: (V, D) unit rows, the projected features of all views.
        w: (C, D) unit rows, the projected class proxies.
        prob: (V, C) class confidences of the weak view of each view's image; no gradient flows into them.
        confident: (V,) bool, whether that weak view is confident; its pseudo label is the argmax of ``prob``.
        loss_form: "paper" or "reference".
        surrogate: SC's positive: "weighted", or the paper's ablations "average" (the plain average of the
            candidates' proxies) and "top1" (the proxy of the most confident class).
        unconfident_negatives: False leaves unconfident views out of UPC's negatives, the paper's ablation.
        temperature: T > 0; all similarities are divided by it. The paper has none, which is T = 1.
    """
    _check(z, w, prob, confident, loss_form, surrogate, temperature)
    dtype = torch.promote_types(torch.promote_types(z.dtype, w.dtype), torch.float32)
    with torch.autocast(z.device.type, enabled=False):
        z, w = z.to(dtype), w.to(dtype)
        prob = prob.detach().to(torch.promote_types(prob.dtype, torch.float32))
        is_candidate = prob > 1 / prob.shape[1]
        is_top = prob.argmax(1, keepdim=True) == torch.arange(prob.shape[1], device=prob.device)

        not_negative = _shares_class(torch.where(confident[:, None], is_top, is_candidate).to(dtype))
        if not unconfident_negatives:
            not_negative |= confident[:, None] & ~confident
        of_surrogate = _surrogate_weights(surrogate, prob.to(dtype), is_candidate, is_top)
        proxy_weights = torch.where(confident[:, None], is_top, of_surrogate).to(dtype)
        positive = torch.linalg.vecdot(z, proxy_weights @ w) / temperature
        floor = REFERENCE_FLOOR / temperature if loss_form == "reference" else None
        losses, negatives = _ContrastRows.apply(z / math.sqrt(temperature), positive, not_negative, floor)

        n_views, n_confident, n_unconfident = len(z), confident.sum(), (~confident).sum()
        return UPCSCTerms(
            upc=_sum_where(confident, losses) / (n_confident.clamp(min=1) if loss_form == "paper" else n_views),
            sc=_sum_where(~confident, losses) / (n_unconfident.clamp(min=1) if loss_form == "paper" else n_views),
            confident_share=n_confident / n_views,
            candidates=_sum_where(~confident, is_candidate.sum(1)) / n_unconfident.clamp(min=1),
            negative_share=negatives / max(1, n_views * (n_views - 1)),
        )


def _check(
    z: Tensor, w: Tensor, prob: Tensor, confident: Tensor, loss_form: str, surrogate: str, temperature: float
) -> None:
    if not 0 < temperature < math.inf:
        raise ValueError(f"temperature has to be a positive number, not {temperature}")
    for name, value, known in (("loss_form", loss_form, FORMS), ("surrogate", surrogate, SURROGATES)):
        if value not in known:
            raise ValueError(f"{name} is '{value}', not one of {', '.join(known)}{did_you_mean(value, known)}")
    shapes = f"z {tuple(z.shape)}, w {tuple(w.shape)}, prob {tuple(prob.shape)}, confident {tuple(confident.shape)}"
    if z.ndim != 2 or w.ndim != 2 or z.shape[1] != w.shape[1]:
        raise ValueError(f"z has to be (V, D) and w (C, D): {shapes}")
    if prob.shape != (len(z), len(w)) or confident.shape != (len(z),):
        raise ValueError(f"with z (V, D) and w (C, D), prob has to be (V, C) and confident (V,): {shapes}")
    if not (len(z) and len(w)):
        raise ValueError(f"there has to be a view and a class: {shapes}")
    if confident.dtype != torch.bool:
        raise ValueError(f"confident has to be bool, not {confident.dtype}; compare a mask of weights with 0")


def _shares_class(possible: Tensor) -> Tensor:
    """(V, C) sets of classes as 0 and 1 -> (V, V) bool, whether two have a class in common; each does with itself."""
    return (possible @ possible.T > 0).fill_diagonal_(True)


def _surrogate_weights(kind: str, prob: Tensor, is_candidate: Tensor, is_top: Tensor) -> Tensor:
    """(V, C) weights of the class proxies in the positive of an unconfident view."""
    if kind == "top1":
        return is_top
    if kind == "average":
        return is_candidate.to(prob.dtype) / is_candidate.sum(1, keepdim=True).clamp(min=1)
    return torch.where(is_candidate, prob, 0)


def _sum_where(chosen: Tensor, values: Tensor) -> Tensor:
    return torch.where(chosen, values, 0).sum()


class _ContrastRows(torch.autograd.Function):
    """z (V, D), positive (V,) similarities, not_negative (V, V) bool -> losses (V,), number of negatives used.

    By hand, because it needs one (V, V) tensor where autograd needs four: the similarities become, in place, the
    exponentials that are all the backward pass asks for, and that only as a factor of two matrix products.
    """

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, positive: Tensor, not_negative: Tensor, floor: float | None
    ) -> tuple[Tensor, Tensor]:
        similarity = z @ z.T
        if floor is not None:
            not_negative = not_negative | (similarity < floor)
        negative_exp, negative_sum, total, largest = _exponentials_in_place(similarity, positive, not_negative)
        ctx.save_for_backward(z, positive, negative_exp, negative_sum, total)
        used = not_negative.numel() - not_negative.count_nonzero()
        ctx.mark_non_differentiable(used)
        return total.log() + (largest - positive), used

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        z, positive, negative_exp, negative_sum, total = ctx.saved_tensors
        with torch.autocast(z.device.type, enabled=False):
            if torch.is_grad_enabled():
                # A gradient of the gradient is asked for (a Hessian, a penalty), so these must depend on z.
                negative_exp, negative_sum, total, _ = _exponentials_in_place(z @ z.T, positive, negative_exp == 0)
            scale = grads[0] / total
            grad_z = scale[:, None] * (negative_exp @ z) + negative_exp.T @ (scale[:, None] * z)
            return grad_z, -scale * negative_sum, None, None


def _exponentials_in_place(
    similarity: Tensor, positive: Tensor, not_negative: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(similarity - largest) of the negatives, 0 elsewhere; its row sums; those with the positive; the largest."""
    similarity.masked_fill_(not_negative, -torch.inf)
    # The positive is always finite, so the largest is, also in a row without negatives.
    largest = torch.maximum(similarity.detach().amax(1), positive.detach())
    negative_exp = similarity.sub_(largest[:, None]).exp_()
    negative_sum = negative_exp.sum(1)
    return negative_exp, negative_sum, negative_sum + (positive - largest).exp(), largest
