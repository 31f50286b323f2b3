"""UPC and SC, the two contrastive losses of "Unlocking the Potential of Unlabeled Data in Semi-Supervised Domain
Generalization" (Lee, Hwang and Kwak, CVPR 2025, https://arxiv.org/abs/2503.13915).

The paper's four kinds of negatives follow one rule. Let the possible classes of a confident view be its pseudo label,
and those of an unconfident view its candidates, the classes with a confidence above 1 / C. Then two views are negatives
of each other exactly if they have no possible class in common, so one matrix product finds all pairs. In both losses
the positive of a view is a weighted sum of class proxies, so both are computed from the same (V, V) matrix.
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
    """The two losses and numbers to log. All are 0-d tensors, and only the losses have a gradient."""

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
    """Unlabelled proxy-based contrastive loss (UPC) and surrogate class loss (SC); the method's loss is their sum.

    The loss of view i is ``-log(exp(p) / (exp(p) + R))``, where p is the similarity to its positive and R is the sum of
    ``exp(z_i . z_j)`` over its negatives j, which never include i itself. Let C_i be the candidates of view i:

    - UPC (equation 2), for confident i. Positive: the proxy of its pseudo label. Negatives: confident views with a
      different pseudo label, and unconfident views whose candidates do not include the pseudo label of i.
    - SC (equations 3 and 4), for unconfident i. Positive: the sum of the proxies of its candidates, weighted by
      confidence and not normalised again. Negatives: confident views whose pseudo label is not in C_i, and unconfident
      views whose candidates share no class with C_i.

    ``loss_form="paper"`` takes one mean over the confident views and one over the unconfident views.
    ``loss_form="reference"`` is the released code, which differs in two ways: ``upc + sc`` is one mean over all V
    views, and negatives with a similarity below 1e-6 are dropped (they neither count nor get a gradient).

    Without confident (unconfident) views, UPC (SC) and its gradient are 0; so is the loss of a view without negatives.
    A view whose confidences all equal 1 / C has no candidates: its surrogate is the zero vector, with similarity 0,
    and every other view is its negative, including other views of the same image.

    The loss is computed in float32, or in float64 if z or w are, even under autocast. It is finite if ``z @ z.T`` and
    ``z @ w.T`` are. Besides matrix products it takes O(V V + V C) time, with one (V, V) tensor of floats in memory at a
    time. It never waits for the device.

    Args:
        z: (V, D) projected features of all views, with unit rows.
        w: (C, D) projected class proxies, with unit rows.
        prob: (V, C) class confidences of the weak view of the same image; they get no gradient.
        confident: (V,) bool, whether that weak view is confident; the pseudo label is the argmax of ``prob``.
        loss_form: "paper" or "reference".
        surrogate: the positive of SC: "weighted", or the paper's ablations "average" (the unweighted mean of the
            candidates' proxies) and "top1" (the proxy of the most confident class).
        unconfident_negatives: if False, UPC has no unconfident negatives (the paper's ablation).
        temperature: T > 0, by which all similarities are divided. The paper uses none, which is T = 1.
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
        raise ValueError(f"expected a positive temperature, got {temperature}")
    for name, value, known in (("loss_form", loss_form, FORMS), ("surrogate", surrogate, SURROGATES)):
        if value not in known:
            raise ValueError(f"{name}: {value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}")
    shapes = f"z {tuple(z.shape)}, w {tuple(w.shape)}, prob {tuple(prob.shape)}, confident {tuple(confident.shape)}"
    if z.ndim != 2 or w.ndim != 2 or z.shape[1] != w.shape[1]:
        raise ValueError(f"expected z (V, D) and w (C, D), got {shapes}")
    if prob.shape != (len(z), len(w)) or confident.shape != (len(z),):
        raise ValueError(f"expected z (V, D), w (C, D), prob (V, C) and confident (V,), got {shapes}")
    if not (len(z) and len(w)):
        raise ValueError(f"expected at least one view and one class, got {shapes}")
    if confident.dtype != torch.bool:
        raise ValueError(f"expected bool for confident, got {confident.dtype}; compare a mask of weights with 0")


def _shares_class(possible: Tensor) -> Tensor:
    """Whether two views share a class, bool (V, V); always true on the diagonal. ``possible`` (V, C) is 0 or 1."""
    return (possible @ possible.T > 0).fill_diagonal_(True)


def _surrogate_weights(kind: str, prob: Tensor, is_candidate: Tensor, is_top: Tensor) -> Tensor:
    """Weights (V, C) of the class proxies in the positive of an unconfident view."""
    if kind == "top1":
        return is_top
    if kind == "average":
        return is_candidate.to(prob.dtype) / is_candidate.sum(1, keepdim=True).clamp(min=1)
    return torch.where(is_candidate, prob, 0)


def _sum_where(chosen: Tensor, values: Tensor) -> Tensor:
    return torch.where(chosen, values, 0).sum()


class _ContrastRows(torch.autograd.Function):
    """The losses (V,) and the number of negatives, from z (V, D), the similarities to the positives (V,), and
    not_negative (V, V) bool.

    Its backward pass is written by hand, because autograd would store four (V, V) tensors instead of one: the
    similarities are replaced in place by their exponentials, and the backward pass needs only these, as a factor in two
    matrix products.
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
                # For second derivatives (a Hessian or a gradient penalty), these must depend on z.
                negative_exp, negative_sum, total, _ = _exponentials_in_place(z @ z.T, positive, negative_exp == 0)
            scale = grads[0] / total
            grad_z = scale[:, None] * (negative_exp @ z) + negative_exp.T @ (scale[:, None] * z)
            return grad_z, -scale * negative_sum, None, None


def _exponentials_in_place(
    similarity: Tensor, positive: Tensor, not_negative: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """exp(similarity - largest) of the negatives, 0 elsewhere; its row sums; those plus the positive; the largest."""
    similarity.masked_fill_(not_negative, -torch.inf)
    # The positive is always finite, so the largest is finite even in a row without negatives.
    largest = torch.maximum(similarity.detach().amax(1), positive.detach())
    negative_exp = similarity.sub_(largest[:, None]).exp_()
    negative_sum = negative_exp.sum(1)
    return negative_exp, negative_sum, negative_sum + (positive - largest).exp(), largest
