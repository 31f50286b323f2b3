"""DGWM's classifier: in training, the class weights are multiplied by a mask generated from a domain's mean feature.

Galappaththige et al., "Domain-Guided Weight Modulation for Semi-Supervised Domain Generalization" (WACV 2025,
https://arxiv.org/abs/2409.03509). The published widths (256, 128, 64, 64 noise values, 256, 512) are for 512 features;
for other feature sizes they are scaled in proportion.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from semilearn_ext.nets.heads import ClassifierHead, Passes


class ModulatedClassifier(ClassifierHead):
    """Logits (N, C) of features (N, D). Every pass contains the images of one domain. No mask is used at test time.

    For a pass with the mean feature m (D,) and the noise e (Z,), the hidden vector is h = generate(describe(m), e), the
    mask is sigmoid(by_class(h) by_feature(h)^T), (C, D), and the class weights are mask * weight, without a bias.
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

    def classify(self, features: Tensor, passes: Passes) -> Tensor:
        count = len(passes.sample)
        means = features.new_zeros(count, features.shape[1]).index_add_(0, passes.index, features)
        rows = features.new_zeros(count).index_add_(0, passes.index, torch.ones_like(features[:, 0])).clamp(min=1)
        noise = self._noise(passes, features)
        hidden = self.generate(torch.cat([self.describe(means / rows[:, None]), noise], dim=1))
        mask = (self.by_class(hidden)[:, :, None] * self.by_feature(hidden)[:, None, :]).sigmoid()
        logits = features @ (mask * self.weight).transpose(1, 2)  # (G, N, C)
        return logits[passes.index, torch.arange(len(features), device=features.device)]

    def predict(self, features: Tensor) -> Tensor:
        return linear(features, self.weight)

    def draw(self, passes: int) -> Tensor:
        """Draw noise (G, Z)."""
        return torch.randn(passes, self.noise_size, device=self.weight.device, dtype=self.weight.dtype)

    def _noise(self, passes: Passes, features: Tensor) -> Tensor:
        """Noise (G, Z): random for passes with ``sample``, zero for the others."""
        zeros = self.weight.new_zeros(self.noise_size)
        drawn = iter(self.draw(sum(passes.sample)) if any(passes.sample) else ())
        return torch.stack([next(drawn) if noisy else zeros for noisy in passes.sample]).to(features.dtype)
