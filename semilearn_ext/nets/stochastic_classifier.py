"""StyleMatch's classifier: during training, new class weights are drawn in every forward pass.

Zhou et al., "Semi-Supervised Domain Generalization with Stochastic StyleMatch" (https://arxiv.org/abs/2106.00592),
section 3.2, with the constants of the released code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize, softplus

from semilearn_ext.nets.heads import ClassifierHead, Passes

TEMPERATURE = 0.05
SIGMA_SHIFT = 4.0


class StochasticClassifier(ClassifierHead):
    """Cosine logits (N, C) of features (N, D), with weights mu + softplus(sigma - 4) * noise.

    Training draws the noise once per pass; pseudo labels and testing use mu alone.
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(0.01 * torch.randn(num_classes, num_features))
        self.sigma = nn.Parameter(torch.zeros(num_classes, num_features))

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        return self.mu

    def classify(self, features: Tensor, passes: Passes) -> Tensor:
        if not any(passes.sample):
            return self.predict(features)
        drawn = self.draw(sum(passes.sample))
        scale = softplus(self.sigma - SIGMA_SHIFT)
        sampled = iter(drawn)
        weights = torch.stack([self.mu + scale * next(sampled) if noisy else self.mu for noisy in passes.sample])
        rows = torch.arange(len(features), device=features.device)
        with torch.autocast(features.device.type, enabled=False):
            unit = normalize(features.to(weights.dtype), dim=1)
            return (unit @ normalize(weights, dim=2).transpose(1, 2))[passes.index, rows] / TEMPERATURE

    def predict(self, features: Tensor) -> Tensor:
        # Not in half precision, because dividing by 0.05 multiplies rounding errors by twenty.
        with torch.autocast(features.device.type, enabled=False):
            return linear(normalize(features.to(self.mu.dtype), dim=1), normalize(self.mu, dim=1)) / TEMPERATURE

    def draw(self, passes: int) -> Tensor:
        """Draw noise (G, C, D)."""
        return torch.randn(passes, *self.mu.shape, device=self.mu.device, dtype=self.mu.dtype)
