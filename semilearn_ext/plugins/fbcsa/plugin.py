"""FBCSA: feature-based conformity and semantics alignment, with domain labels.

Galappaththige et al., "Towards Generalizing to Unseen Domains with Few Labels" (CVPR 2024,
https://arxiv.org/abs/2403.11674). Prototypes are the mean unit features of the labelled images of every domain and
class, computed before every epoch; the losses are in ``losses.fbcsa``. Which other domain, and how many wrong
prototypes, are compared with is drawn for every domain and step. Deviation: the released code averages the labelled
images that one epoch of its sampler yields (on PACS 64 of a domain's 70), this one all of them.
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
        """For every domain (K,): another domain, and the rank n of the last wrong prototype.

        The draws depend on the seed and the step alone, so every process makes the same ones.
        """
        rng = torch.Generator().manual_seed((self.seed * 1_000_003 + self.steps) % 2**63)
        self.steps += 1
        domains = self.model.num_domains
        other = (torch.arange(domains) + torch.randint(1, domains, (domains,), generator=rng)) % domains
        return other, torch.randint(2, -(-self.model.num_classes // 2), (domains,), generator=rng)


def class_prototypes(features: Tensor, labels: Tensor, domain: Tensor, model: ModelSpec) -> Tensor:
    """(K, C, D): the mean of the unit features (M, D) of every domain and class."""
    cell = domain * model.num_classes + labels
    cells = model.num_domains * model.num_classes
    unit = normalize(features.float(), dim=1)
    total = unit.new_zeros(cells, unit.shape[1]).index_add_(0, cell, unit)
    count = unit.new_zeros(cells).index_add_(0, cell, torch.ones_like(cell, dtype=unit.dtype))
    return (total / count.clamp(min=1)[:, None]).view(model.num_domains, model.num_classes, -1)
