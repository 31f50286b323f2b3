"""DGWM's classifier: while training, a mask made from a domain's mean feature is multiplied onto the class weights.

Galappaththige et al., "Domain-Guided Weight Modulation for Semi-Supervised Domain Generalization" (WACV 2025). The
published widths (256, 128, 64, 64 noise values, 256, 512) are those of a feature of 512 numbers; for others they keep
their ratio to it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class ModulatedClassifier(nn.Module):
    """Logits (N, C) of features (N, D) that all come from one domain; the bare weight at test.

    An algorithm that classifies several domains at once says so with :meth:`lay_out`.
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        half, quarter, eighth = num_features // 2, num_features // 4, num_features // 8
        self.weight = nn.Parameter(torch.empty(num_classes, num_features).uniform_(-1, 1) / num_features**0.5)
        self.describe = nn.Sequential(
            nn.Linear(num_features, half),
            nn.ReLU(),
            nn.Linear(half, quarter),
            nn.ReLU(),
            nn.Linear(quarter, eighth),
            nn.Sigmoid(),
        )
        self.generate = nn.Sequential(nn.Linear(2 * eighth, half), nn.ReLU(), nn.Linear(half, num_features), nn.ReLU())
        self.by_feature = nn.Linear(num_features, num_features)
        self.by_class = nn.Linear(num_features, num_classes)
        self.noise_size = eighth
        self._layout: tuple[int, int, int] | None = None

    def lay_out(self, labelled: int, unlabelled: int, domains: int) -> None:
        """From now on a training batch is ``labelled`` images, then the views of ``unlabelled`` others, the weak ones
        first; each part domain after domain, in equal shares.
        """
        self._layout = (labelled, unlabelled, domains)

    def forward(self, feat: Tensor) -> Tensor:
        if not self.training:
            return linear(feat, self.weight)
        if self._layout is None:
            return self.modulated(feat, self._noise(1, feat))
        labelled, unlabelled, domains = self._layout
        views = (len(feat) - labelled) // unlabelled
        noise = self._noise(views * domains, feat)
        noise[:domains] = 0  # the weak views, of which pseudo labels are made
        return torch.cat(
            [self.modulated(feat[:labelled], self._noise(domains, feat)), self.modulated(feat[labelled:], noise)]
        )

    def pseudo(self, feat: Tensor) -> Tensor:
        """Logits of one domain's images without noise."""
        return self.modulated(feat, torch.zeros(1, self.noise_size, device=feat.device))

    def modulated(self, feat: Tensor, noise: Tensor) -> Tensor:
        """Logits of G equal groups, one after the other, with noise (G, Z)."""
        grouped = feat.view(len(noise), -1, feat.shape[1])
        hidden = self.generate(torch.cat([self.describe(grouped.mean(dim=1)), noise.to(feat.dtype)], dim=1))
        mask = (self.by_class(hidden)[:, :, None] * self.by_feature(hidden)[:, None, :]).sigmoid()
        return (grouped @ (mask * self.weight).transpose(1, 2)).flatten(0, 1)

    def _noise(self, groups: int, feat: Tensor) -> Tensor:
        return torch.randn(groups, self.noise_size, device=feat.device)
