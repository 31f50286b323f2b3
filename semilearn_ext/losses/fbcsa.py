"""FBCSA's two losses: feature-based conformity (FBC) and semantics alignment (SA).

Galappaththige et al., "Towards Generalizing to Unseen Domains with Few Labels" (CVPR 2024,
https://arxiv.org/abs/2403.11674). Features are compared with the class prototypes of their own domain and of one other
domain. Deviation from the 'cosine similarity' of the paper, as in the released code: prototypes are means of unit
vectors and are not normalised again.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize


class FBCSATerms(NamedTuple):
    """Both losses without their weights, averaged within a domain and summed over the domains."""

    fbc: Tensor
    sa: Tensor


def fbcsa_loss(
    features: Tensor,
    prototypes: Tensor,
    pseudo_label: Tensor,
    confident: Tensor,
    domain: Tensor,
    other_domain: Tensor,
    last_rank: Tensor,
) -> FBCSATerms:
    """FBC pulls a confident image towards the prototypes of its class; SA also pushes it away from the nearest others.

    Let s (C,) be the similarities of an image to the prototypes of its own domain, s' (C,) those to the prototypes of
    the other domain, and y its pseudo label. Let s_k be the k-th largest entry of s, and s'_1 the entry of s' for the
    class of s_1.

    - FBC: cross_entropy(s, y) + cross_entropy(s', y).
    - SA: 2 - s_1 - s'_1 + mean(s_2, ..., s_n), where n is ``last_rank``.

    Args:
        features: (N, D) features of weak views, not normalised, with gradient.
        prototypes: (K, C, D) means of unit features per domain and class.
        pseudo_label: (N,).
        confident: (N,) bool; the loss of an unconfident image counts as zero in the mean of its domain.
        domain: (N,) from 0 to K-1.
        other_domain: (K,) the other domain that each domain is compared with.
        last_rank: (K,) n >= 2; SA pushes images away from the second to the n-th nearest prototype.
    """
    domains, classes, _ = prototypes.shape
    similarity = (normalize(features, dim=1) @ prototypes.flatten(0, 1).T).view(-1, domains, classes)
    rows = torch.arange(len(features), device=features.device)
    own, other = similarity[rows, domain], similarity[rows, other_domain[domain]]
    fbc = cross_entropy(own, pseudo_label, reduction="none") + cross_entropy(other, pseudo_label, reduction="none")

    ranked, order = own.sort(dim=1, descending=True)
    best = ranked[:, 0]
    last = last_rank[domain]
    up_to_last = ranked.cumsum(dim=1).gather(1, (last - 1)[:, None])[:, 0]
    nearest_wrong = (up_to_last - best) / (last - 1)
    sa = 2 - best - other.gather(1, order[:, :1])[:, 0] + nearest_wrong

    images = (domain[:, None] == torch.arange(domains, device=domain.device)).sum(dim=0)
    weight = confident.to(own.dtype) / images[domain]
    return FBCSATerms((fbc * weight).sum(), (sa * weight).sum())
