"""StyleMatch's third view: an un-augmented image in the style of an image from another source domain.

Zhou, Loy and Liu, "Semi-Supervised Domain Generalization with Stochastic StyleMatch" (IJCV 2023,
https://arxiv.org/abs/2106.00592).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from semilearn_ext.data.packed import send
from semilearn_ext.data.views import ViewSpec
from semilearn_ext.engine.device import Precision
from semilearn_ext.nets.adain import StyleTransfer


class StyleView:
    """Computes style views in batches, without gradient, in ``precision`` and on its device, at the training size."""

    def __init__(self, transfer: StyleTransfer, spec: ViewSpec, alpha: float, precision: Precision) -> None:
        device = precision.device
        # A copy, because the published networks are loaded once and must not be changed.
        self.transfer = copy.deepcopy(transfer).to(device, precision.dtype)
        self.alpha, self.size = alpha, spec.size
        self.mean, self.std = (torch.tensor(numbers, device=device).view(3, 1, 1) for numbers in (spec.mean, spec.std))

    @torch.no_grad()
    def encode(self, plain: Tensor) -> Tensor:
        """Encode plain views (N, 3, H, W) as (N, 512, h, w)."""
        return self.transfer.encode(plain * self.std + self.mean).float()

    @torch.no_grad()
    def restyle(self, encodings: Tensor, partners: Tensor) -> Tensor:
        """Decode encodings to normalised views (N, 3, H, W), each in the style of the image at ``partners`` (N,)."""
        style = encodings[send(partners, encodings.device)]
        pictures = self.transfer.decode(encodings, style, self.alpha, self.size)
        return (pictures.float() - self.mean) / self.std


def draw_partners(domain: Tensor, key: Sequence[int]) -> Tensor:
    """For every image, the row (N,) of the image whose style it gets. ``domain`` (N,) contains their domains.

    As in the released code, another domain is drawn for every domain, and image i gets the style of image i there. The
    draws depend only on ``key``, so every method built on StyleMatch uses the same styles with the same seed.
    """
    rng = torch.Generator().manual_seed(int(np.random.SeedSequence(key).generate_state(1)[0]))
    rows = [(domain == number).nonzero()[:, 0] for number in domain.unique().tolist()]
    count = len(rows)
    others = (torch.arange(count) + torch.randint(1, max(count, 2), (count,), generator=rng)) % count
    partners = torch.empty_like(domain)
    for own, other in zip(rows, others.tolist(), strict=True):
        partners[own] = rows[other][torch.arange(len(own)) % len(rows[other])]
    return partners
