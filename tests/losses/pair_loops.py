"""UPC and SC computed from the paper's equations, one pair of views at a time: a slow definition for the tests."""

from __future__ import annotations

import torch
from torch import Tensor

from semilearn_ext.losses.upcsc import REFERENCE_FLOOR


def oracle(
    z: Tensor,
    w: Tensor,
    prob: Tensor,
    confident: Tensor,
    loss_form: str,
    surrogate: str,
    unconfident_negatives: bool,
    temperature: float = 1.0,
) -> tuple[Tensor, Tensor, int]:
    """UPC, SC and the number of negatives used."""
    n_views, n_classes = prob.shape
    label = [max(range(n_classes), key=lambda k: float(prob[i, k])) for i in range(n_views)]
    candidates = [{k for k in range(n_classes) if float(prob[i, k]) > 1 / n_classes} for i in range(n_views)]
    used = 0

    def contrast(i: int, positive: Tensor, negatives: list[int]) -> Tensor:
        nonlocal used
        similarities = [torch.dot(z[i], z[j]) for j in negatives]
        if loss_form == "reference":
            similarities = [s for s in similarities if float(s.detach()) >= REFERENCE_FLOOR]
        used += len(similarities)
        p = (torch.dot(z[i], positive) / temperature).exp()
        return -torch.log(p / (p + sum((s / temperature).exp() for s in similarities)))

    def is_upc_negative(i: int, j: int) -> bool:
        if confident[j]:
            return label[j] != label[i]
        return unconfident_negatives and label[i] not in candidates[j]

    def is_sc_negative(i: int, j: int) -> bool:
        if confident[j]:
            return label[j] not in candidates[i]
        return not candidates[i] & candidates[j]

    def surrogate_class(i: int) -> Tensor:
        if surrogate == "top1":
            return w[label[i]]
        total = torch.zeros_like(w[0])
        for k in candidates[i]:
            total = total + (prob[i, k] if surrogate == "weighted" else 1 / len(candidates[i])) * w[k]
        return total

    upc, sc = [], []
    for i in range(n_views):
        others = [j for j in range(n_views) if j != i]
        if confident[i]:
            upc.append(contrast(i, w[label[i]], [j for j in others if is_upc_negative(i, j)]))
        else:
            sc.append(contrast(i, surrogate_class(i), [j for j in others if is_sc_negative(i, j)]))
    zero = 0 * (z.sum() + w.sum())
    n_upc, n_sc = (len(upc), len(sc)) if loss_form == "paper" else (n_views, n_views)
    return zero + sum(upc) / max(1, n_upc), zero + sum(sc) / max(1, n_sc), used
