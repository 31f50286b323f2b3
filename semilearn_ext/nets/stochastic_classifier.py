"""StyleMatch's classifier: class weights are drawn anew in every forward pass while training.

Zhou et al., "Semi-Supervised Domain Generalization with Stochastic StyleMatch" (IJCV 2023), section 3.2; the numbers
are those of the released code.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize, softplus

TEMPERATURE = 0.05
SIGMA_SHIFT = 4.0


class StochasticClassifier(nn.Module):
    """Cosine logits (N, C) of features (N, D), with weights mu + softplus(sigma - 4) * noise.

    Training draws the noise; :meth:`pseudo` and testing use mu alone.
    """

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.mu = nn.Parameter(0.01 * torch.randn(num_classes, num_features))
        self.sigma = nn.Parameter(torch.zeros(num_classes, num_features))

    @property
    def weight(self) -> Tensor:
        """(C, D): the class proxies."""
        return self.mu

    def forward(self, feat: Tensor) -> Tensor:
        if not self.training:
            return self.pseudo(feat)
        return self._logits(feat, self.mu + softplus(self.sigma - SIGMA_SHIFT) * torch.randn_like(self.mu))

    def pseudo(self, feat: Tensor) -> Tensor:
        """Logits without noise."""
        return self._logits(feat, self.mu)

    def _logits(self, feat: Tensor, weight: Tensor) -> Tensor:
        # A temperature of 0.05 makes a rounding error twenty times as large: never in half precision.
        with torch.autocast(feat.device.type, enabled=False):
            return linear(normalize(feat.to(weight.dtype), dim=1), normalize(weight, dim=1)) / TEMPERATURE
