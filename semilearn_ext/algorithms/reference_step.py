"""The SSDG benchmark's training step, ``step: reference``, which produced the paper's numbers.

It is the step of the code released with StyleMatch (https://arxiv.org/abs/2106.00592) and UPCSC
(https://arxiv.org/abs/2503.13915). Every pass below is one call of the network in training mode in that code, so batch
norm normalises over exactly these images and updates its running statistics once per pass, in this order (K domains):

1. Pseudo labels, without gradient: one pass per domain over the weak views of its labelled and unlabelled images.
2. Supervised loss: one pass per domain over the weak views of its labelled images.
3. Unsupervised loss: one pass per domain over the strong views of its labelled and unlabelled images, for StyleMatch
   followed by one over the style views. For plug-ins that want batches of one domain (FBCSA), the weak views again,
   with gradient.
4. For plug-ins that want mixed batches (UPCSC), one pass per view over the unlabelled images of all domains.

Labelled images are part of the unlabelled loss, with their pseudo labels and mask. Losses are averaged within a domain
and summed over the domains. Here all passes of one kind share one call of the network (see ``nets.batch_groups``), and
the weak views for FBCSA are those of the pseudo labels, computed once. The results equal those of the released code:
see ``tests/algorithms/test_released_steps.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from semilearn_ext.algorithms.step_views import Images, StepViews, pseudo_labels, step_result
from semilearn_ext.algorithms.stylematch import CachingStyleMatch
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.errors import UserError
from semilearn_ext.nets.batch_groups import grouped_features
from semilearn_ext.nets.classifier_net import class_weights, find_classifier
from semilearn_ext.nets.heads import ClassifierHead, Passes
from semilearn_ext.plugins.base import Plugin, View, Wants
from semilearn_ext.semilearn_api import FixMatch
from semilearn_ext.settings import Settings


class ReferenceStep(SSDGBase):
    """The passes and losses that the benchmark's trainers share. Batches are sorted by domain, in equal parts."""

    @classmethod
    def check(cls, settings: Settings, data: SSDGData) -> None:
        if len(data.sources) < 2:
            raise UserError(
                f"{settings.where('source_domains')}: the reference step needs at least two source domains (with one, "
                f"the released code halves its batch); add a source domain, or use step: usb"
            )

    @property
    def domains(self) -> int:
        return len(self.context.data.sources)

    def by_domain(self, labelled: Tensor, unlabelled: Tensor) -> list[Tensor]:
        """One batch per domain, with the labelled images first."""
        pairs = zip(labelled.chunk(self.domains), unlabelled.chunk(self.domains), strict=True)
        return [torch.cat(pair) for pair in pairs]

    def classify(self, features: Tensor, passes: int, sample: bool) -> Tensor:
        """Logits of passes of equal size; ``sample`` enables the noise of stochastic classifiers."""
        classifier = find_classifier(self.model)
        if isinstance(classifier, ClassifierHead):
            size = len(features) // passes
            return classifier.classify(features, Passes.of_sizes([size] * passes, [sample] * passes, features.device))
        logits: Tensor = classifier(features)
        return logits

    def supervised_loss(self, logits: Tensor, y_lb: Tensor) -> Tensor:
        # All domains have equally many images, so the sum of their means is K times the mean over all images.
        loss: Tensor = self.domains * self.ce_loss(logits, y_lb, reduction="mean")
        return loss

    def wants(self) -> list[Wants]:
        """What the plug-ins want, if there are any."""
        plugins: Mapping[str, Plugin] = getattr(self, "plugins", {})
        return [plugin.wants for plugin in plugins.values() if plugin.wants is not None]


class ReferenceERM(ReferenceStep):
    """ERM as released: passes 1 and 2. Unlabelled images enter no loss, but update batch norm's statistics."""

    def train_step(self, x_lb: Tensor, y_lb: Tensor, x_ulb_w: Tensor) -> Any:
        with self.amp_cm():
            with torch.no_grad():
                grouped_features(self.model, self.by_domain(x_lb, x_ulb_w))
            features = torch.cat(grouped_features(self.model, x_lb.chunk(self.domains)))
            loss = self.supervised_loss(self.classify(features, self.domains, sample=True), y_lb)
        return self.process_out_dict(loss=loss), self.process_log_dict(sup_loss=loss.detach())


class ReferenceMatch(FixMatch, ReferenceStep):
    """FixMatch and StyleMatch: a threshold, pseudo labels, and one or more views that are trained with them."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for wants in self.wants():
            if wants.batch == "mixed" and wants.labelled:
                raise UserError(
                    f"{self.settings.where('step')}: a plug-in that wants labelled images in mixed batches only works "
                    f"in USB's step; use step: usb"
                )

    def match(self, y_lb: Tensor, x_lb: Tensor, x_ulb_w: Tensor, others: list[tuple[Tensor, Tensor]]) -> Any:
        """One step.

        Args:
            x_lb, x_ulb_w: the weak views.
            others: the labelled and unlabelled images of every other view: strong, styled.
        """
        wants = self.wants()
        weak_needs_gradient = any(want.batch == "domain" for want in wants)
        mixed = any(want.batch == "mixed" for want in wants)
        weak_images = self.by_domain(x_lb, x_ulb_w)
        # Per domain: strong, then styled.
        other_images = [
            images for views in zip(*(self.by_domain(*view) for view in others), strict=True) for images in views
        ]
        groups = [*x_lb.chunk(self.domains), *other_images]
        groups += [x_ulb_w, *(unlabelled for _, unlabelled in others)] if mixed else []
        with self.amp_cm():
            if weak_needs_gradient:
                repeats = {2 * self.domains + (domain + 1) * len(others) - 1: domain for domain in range(self.domains)}
                features = grouped_features(self.model, [*weak_images, *groups], repeats)
                weak = torch.cat([features.pop(0) for _ in weak_images])
            else:
                with torch.no_grad():
                    weak = torch.cat(grouped_features(self.model, weak_images))
                features = grouped_features(self.model, groups)
            labelled, rest = features[: self.domains], features[self.domains :]
            parts, of_mixed = rest[: len(other_images)], rest[len(other_images) :]

            with torch.no_grad():
                weak_logits = self.classify(weak.detach(), self.domains, sample=False)
            prob = self.compute_prob(weak_logits)
            target, mask = pseudo_labels(self, prob)
            labelled_features = torch.cat(labelled)
            labelled_logits = self.classify(labelled_features, self.domains, sample=True)
            sup_loss = self.supervised_loss(labelled_logits, y_lb)
            logits = self.classify(torch.cat(parts), len(parts), sample=True).chunk(len(parts))
            by_view = [torch.cat(logits[view :: len(others)]) for view in range(len(others))]
            losses = [self.domains * self.consistency_loss(scores, target, "ce", mask=mask) for scores in by_view]
            images = self._plugin_images(wants, weak, parts, by_view, of_mixed, prob, mask >= 1)
        labelled_view = View(labelled_features, labelled_logits)
        views = StepViews(labelled_view, y_lb, class_weights(find_classifier(self.model)), images)
        return step_result(self, sup_loss, losses, mask, views)

    def _plugin_images(
        self,
        wants: list[Wants],
        weak: Tensor,
        parts: list[Tensor],
        logits: list[Tensor],
        mixed: list[Tensor],
        prob: Tensor,
        mask: Tensor,
    ) -> dict[tuple[str, bool], Images]:
        """The images that the plug-ins want: unlabelled ones in mixed batches, or all images by domain."""
        share = len(weak) // self.domains
        domain = torch.arange(self.domains, device=weak.device).repeat_interleave(share)
        images: dict[tuple[str, bool], Images] = {}
        if any(want.batch == "domain" for want in wants):
            views = [View(weak, self.classify(weak, self.domains, sample=False))]
            views += [View(torch.cat(parts[view :: len(logits)]), scores) for view, scores in enumerate(logits)]
            images["domain", True] = Images(views, prob, mask, domain)
            images["domain", False] = self._unlabelled_rows(images["domain", True])
        if mixed:
            rows = self._unlabelled_rows(Images([], prob, mask, domain))
            views = [View(features, self.classify(features, self.domains, sample=False)) for features in mixed]
            images["mixed", False] = Images(views, rows.prob, rows.mask, rows.domain)
        return images

    def _unlabelled_rows(self, images: Images) -> Images:
        """The rows of every domain that belong to unlabelled images."""
        labelled = self.settings.batch_size // self.domains // self.context.group.world_size

        def rows(tensor: Tensor) -> Tensor:
            return tensor.view(self.domains, -1, *tensor.shape[1:])[:, labelled:].flatten(0, 1)

        views = [View(rows(view.features), rows(view.logits)) for view in images.views]
        return Images(views, rows(images.prob), rows(images.mask), rows(images.domain))


class ReferenceFixMatch(ReferenceMatch):
    """FixMatch (https://arxiv.org/abs/2001.07685, equations 3 and 4) in the benchmark's step."""

    def train_step(self, x_lb: Tensor, x_lb_s: Tensor, y_lb: Tensor, x_ulb_w: Tensor, x_ulb_s: Tensor) -> Any:
        return self.match(y_lb, x_lb, x_ulb_w, [(x_lb_s, x_ulb_s)])


class ReferenceStyleMatch(CachingStyleMatch, ReferenceMatch):
    """StyleMatch (https://arxiv.org/abs/2106.00592) in the benchmark's step."""

    encoded_streams = ("labeled", "unlabeled")

    @classmethod
    def check(cls, settings: Settings, data: SSDGData) -> None:
        CachingStyleMatch.check(settings, data)

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
        encodings = (self.encodings("labeled", x_lb_p, idx_lb), self.encodings("unlabeled", x_ulb_p, idx_ulb))
        styled = self.styled(self.by_domain(*encodings))
        labelled = len(x_lb) // self.domains
        return self.match(
            y_lb,
            x_lb,
            x_ulb_w,
            [
                (x_lb_s, x_ulb_s),
                (
                    torch.cat([images[:labelled] for images in styled]),
                    torch.cat([images[labelled:] for images in styled]),
                ),
            ],
        )
