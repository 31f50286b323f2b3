"""FBCSA: feature-based conformity and semantics alignment, with domain labels.

Galappaththige et al., "Towards Generalizing to Unseen Domains with Few Labels" (CVPR 2024). Prototypes are the mean
unit features of the labelled images by domain and class, made anew before every epoch; the losses are in
``losses.fbcsa``. Which other domain and how many wrong prototypes are compared with is drawn anew for every domain and
step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from semilearn_ext.errors import UserError
from semilearn_ext.losses import fbcsa_loss
from semilearn_ext.plugins.base import Labelled, Observation, Plugin, Scene, register

FEWEST_CLASSES = 5


@register("fbcsa")
class FBCSA(Plugin):
    needs_labelled_features = True

    @classmethod
    def check(cls, num_classes: int, num_domains: int) -> None:
        if num_classes < FEWEST_CLASSES:
            raise UserError(
                f"fbcsa: needs at least {FEWEST_CLASSES} classes to rank the wrong ones, the data has "
                f"{num_classes}; use another plug-in"
            )
        if num_domains < 2:
            raise UserError("fbcsa: compares every source domain with another, but there is only one; add a domain")

    def modules(self, feature_dim: int, num_classes: int) -> nn.Module:
        """Nothing to train: the prototypes (K, C, D), kept here so that they are in the checkpoints."""
        holder = nn.Module()
        holder.register_buffer("prototypes", torch.zeros(self.scene.num_domains, num_classes, feature_dim))
        return holder

    def before_epoch(self, labelled: Labelled) -> None:
        assert labelled.domain is not None
        self.module.prototypes.copy_(prototypes(labelled.features, labelled.labels, labelled.domain, self.scene))

    def losses(self, seen: Observation) -> dict[str, tuple[float, Tensor]]:
        weak = seen.weak_of_all()
        domains = self.scene.num_domains
        other = (torch.arange(domains) + torch.randint(1, domains, (domains,))) % domains
        last = torch.randint(2, -(-self.scene.num_classes // 2), (domains,))
        device = weak.features.device
        loss = fbcsa_loss(
            weak.features.float(),
            self.module.prototypes,
            weak.prob.argmax(dim=1),
            weak.confident,
            weak.domain,
            other.to(device),
            last.to(device),
        )
        return {"fbc": (self.options["fbc_weight"], loss.fbc), "sa": (self.options["sa_weight"], loss.sa)}


def prototypes(features: Tensor, labels: Tensor, domain: Tensor, scene: Scene) -> Tensor:
    """(K, C, D): the mean of the unit features (M, D) of every domain and class."""
    cell = domain * scene.num_classes + labels
    cells = scene.num_domains * scene.num_classes
    unit = normalize(features.float(), dim=1)
    total = unit.new_zeros(cells, unit.shape[1]).index_add_(0, cell, unit)
    count = unit.new_zeros(cells).index_add_(0, cell, torch.ones_like(cell, dtype=unit.dtype))
    return (total / count.clamp(min=1)[:, None]).view(scene.num_domains, scene.num_classes, -1)
