"""FBCSA: feature-based conformity and semantics alignment, with domain labels.

Galappaththige et al., "Towards Generalizing to Unseen Domains with Few Labels" (CVPR 2024,
https://arxiv.org/abs/2403.11674). Prototypes are the mean unit features of the labelled images of every domain and
class, computed before every epoch; the losses are in ``losses.fbcsa``. For every domain and step, the other domain and
the number of wrong prototypes to compare with are drawn at random. Deviation: the released code averages the labelled
images of one epoch of its sampler (64 of the 70 images of a domain on PACS); here all of them are averaged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from semilearn_ext.data.packed import send
from semilearn_ext.losses import fbcsa_loss
from semilearn_ext.plugins.base import ModelSpec, Plugin, StepOutput, Wants


class FBCSA(Plugin):
    wants = Wants(views="weak", batch="domain", labelled=True)
    needs_labelled_features = True
    prototypes: Tensor

    def __init__(self, options: Mapping[str, Any], model: ModelSpec) -> None:
        super().__init__(options, model)
        self.labelled_features_mode = options["prototype_mode"]
        self.register_buffer("prototypes", torch.zeros(model.num_domains, model.num_classes, model.num_features))
        self.seed = torch.initial_seed()
        self.steps = 0

    def before_epoch(self, features: Tensor, labels: Tensor, domain: Tensor | None) -> None:
        assert domain is not None
        self.prototypes.copy_(class_prototypes(features, labels, domain, self.model))

    def losses(self, step: StepOutput) -> dict[str, tuple[float, Tensor]]:
        assert step.domain is not None
        other, last = self.draw()
        features = step.unlabelled[0].features
        terms = fbcsa_loss(
            features.to(self.prototypes.dtype),
            self.prototypes,
            step.prob.argmax(dim=1),
            step.mask,
            step.domain,
            send(other, features.device),
            send(last, features.device),
        )
        return {"fbc": (self.options["fbc_weight"], terms.fbc), "sa": (self.options["sa_weight"], terms.sa)}

    def draw(self) -> tuple[Tensor, Tensor]:
        """Draw another domain and the rank n of the last wrong prototype for every domain (K,).

        The draws depend only on the seed and the step, so they are the same in every process.
        """
        rng = torch.Generator().manual_seed((self.seed * 1_000_003 + self.steps) % 2**63)
        self.steps += 1
        domains = self.model.num_domains
        other = (torch.arange(domains) + torch.randint(1, domains, (domains,), generator=rng)) % domains
        return other, torch.randint(2, -(-self.model.num_classes // 2), (domains,), generator=rng)


def class_prototypes(features: Tensor, labels: Tensor, domain: Tensor, model: ModelSpec) -> Tensor:
    """The mean of the unit features (M, D) per domain and class, (K, C, D)."""
    cell = domain * model.num_classes + labels
    cells = model.num_domains * model.num_classes
    unit = normalize(features.float(), dim=1)
    total = unit.new_zeros(cells, unit.shape[1]).index_add_(0, cell, unit)
    count = unit.new_zeros(cells).index_add_(0, cell, torch.ones_like(cell, dtype=unit.dtype))
    return (total / count.clamp(min=1)[:, None]).view(model.num_domains, model.num_classes, -1)
