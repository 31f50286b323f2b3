"""The SSDG benchmark's step, ``step: reference``, with which the paper's numbers were made.

It differs from USB's in three ways: every forward pass sees one domain, so batch norm does; the unlabelled loss runs
over the labelled images too; losses are means within a domain, summed over the domains. Deviation: the released code
passes the weak labelled images twice, once among the others of their domain for pseudo labels and once alone for the
supervised loss; here they go through once, among the others.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from semilearn_ext.algorithms.fixmatch_parts import FixMatchParts
from semilearn_ext.algorithms.stylematch import StyleMatch
from semilearn_ext.engine.base import Traits
from semilearn_ext.engine.observing import join_by_domain
from semilearn_ext.nets.classifier_net import by_domain


def reference_step(algorithm: FixMatchParts, y_lb: Tensor, weak: Tensor, others: list[Tensor]) -> Any:
    """One step on views of labelled and unlabelled images together, each view domain after domain, labelled first."""
    domains = algorithm.domains
    with algorithm.amp_cm():
        network = partial(algorithm.model, only_feat=True)
        weak_feat, *other_feats = (by_domain(network, view, domains) for view in (weak, *others))
        labelled = weak_feat.view(domains, -1, weak_feat.shape[1])[:, : len(y_lb) // domains].flatten(0, 1)
        # Domains have equal shares: a sum of their means is so many times the mean of all.
        sup_loss = domains * algorithm.ce_loss(algorithm.classify(labelled), y_lb, reduction="mean")
        losses, mask = algorithm.unlabelled_losses(weak_feat, other_feats)
        losses = [domains * loss for loss in losses]
    return algorithm.outcome(sup_loss, losses, mask, {"x_lb": labelled, "x_ulb_w": weak_feat, "x_ulb_s": other_feats})


class ReferenceFixMatch(FixMatchParts):
    """FixMatch in the benchmark's step."""

    traits = Traits(labelled_too=True)

    def train_step(self, x_lb: Tensor, x_lb_s: Tensor, y_lb: Tensor, x_ulb_w: Tensor, x_ulb_s: Tensor) -> Any:
        join = partial(join_by_domain, domains=self.domains)
        return reference_step(self, y_lb, join(x_lb, x_ulb_w), [join(x_lb_s, x_ulb_s)])


class ReferenceStyleMatch(StyleMatch):
    """StyleMatch in the benchmark's step."""

    traits = Traits(labelled_too=True)
    encoded_streams = ("labeled", "unlabeled")

    def train_step(  # type: ignore[override]
        self,
        x_lb: Tensor,
        x_lb_s: Tensor,
        x_lb_p: Tensor,
        y_lb: Tensor,
        idx_lb: Tensor,
        x_ulb_w: Tensor,
        x_ulb_s: Tensor,
        x_ulb_p: Tensor,
        idx_ulb: Tensor,
    ) -> Any:
        join = partial(join_by_domain, domains=self.domains)
        encodings = join(self.encodings("labeled", x_lb_p, idx_lb), self.encodings("unlabeled", x_ulb_p, idx_ulb))
        styled = self.styled(encodings)
        return reference_step(self, y_lb, join(x_lb, x_ulb_w), [join(x_lb_s, x_ulb_s), styled])
