"""The common interface of classifiers that replace a network's linear layer.

In the released training steps such a classifier is called once per forward pass, and what it draws or computes (noise,
the mean feature of a domain) belongs to that pass. Here several passes may share one call, so every row of a batch is
assigned to a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from semilearn_ext.data.packed import send


@dataclass(frozen=True)
class Passes:
    """The assignment of the rows of a batch to forward passes."""

    index: Tensor
    """(N,) the pass of every row, 0 ... G-1."""
    sample: tuple[bool, ...]
    """For each of the G passes, whether noise is drawn (training) or left out (pseudo labels)."""

    @classmethod
    def single(cls, rows: int, device: torch.device, sample: bool) -> Passes:
        return cls(torch.zeros(rows, dtype=torch.long, device=device), (sample,))

    @classmethod
    def of_sizes(cls, sizes: list[int], sample: list[bool], device: torch.device) -> Passes:
        """Passes of the given sizes that are contiguous in the batch."""
        counts = torch.tensor(sizes)
        index = torch.arange(len(sizes)).repeat_interleave(counts, output_size=sum(sizes))
        return cls(send(index, device), tuple(sample))


class ClassifierHead(nn.Module):
    """Logits (N, C) of features (N, D).

    Attributes:
        passes: the passes of the next training batch, for networks that call ``head(features)``; None for one pass with
            noise.
    """

    weight: Tensor
    """(C, D): the class proxies."""

    def __init__(self) -> None:
        super().__init__()
        self.passes: Passes | None = None

    def classify(self, features: Tensor, passes: Passes) -> Tensor:
        """Logits during training."""
        raise NotImplementedError

    def predict(self, features: Tensor) -> Tensor:
        """Logits at test time."""
        raise NotImplementedError

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return self.predict(features)
        passes = self.passes
        if passes is None or len(passes.index) != len(features):
            passes = Passes.single(len(features), features.device, sample=True)
        return self.classify(features, passes)
