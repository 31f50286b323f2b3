"""StyleMatch: FixMatch with a stochastic classifier and a style view.

Zhou, Loy and Liu, "Semi-Supervised Domain Generalization with Stochastic StyleMatch" (IJCV 2023,
https://arxiv.org/abs/2106.00592). It is built on USB's FixMatch, whose threshold, pseudo labels and options are used
unchanged. All views of the unlabelled images share one pass through the network, as in USB's FixMatch;
``reference_step`` implements the passes of the SSDG benchmark.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from semilearn_ext.algorithms.step_views import Images, StepViews, confidences_mask, joined, pseudo_labels, step_result
from semilearn_ext.algorithms.style_view import StyleView, draw_partners
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.views import ViewSpec
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.device import Precision, evaluation_batch, fast_precision, to_device
from semilearn_ext.errors import UserError
from semilearn_ext.nets.adain import encoded_bytes, load_style_transfer
from semilearn_ext.nets.classifier_net import class_weights, find_classifier, replace_classifier
from semilearn_ext.nets.heads import ClassifierHead, Passes
from semilearn_ext.nets.stochastic_classifier import StochasticClassifier
from semilearn_ext.plugins.base import View
from semilearn_ext.semilearn_api import FixMatch
from semilearn_ext.settings import Settings

# Encodings of un-augmented images never change. They are cached if they fit into this much memory and are reused.
KEPT_BYTES = 2**28


class StyleMatch(FixMatch):
    """StyleMatch on stock USB. Batches contain plain images ``x_ulb_p`` and domain numbers ``d_lb`` and ``d_ulb``."""

    @functools.cached_property
    def style(self) -> StyleView:
        """Built on first use, because a finished run predicts without AdaIN's weights."""
        transfer = load_style_transfer(self.args.adain_dir)
        return StyleView(transfer, self.view_spec(), self.args.style_alpha, self.style_precision())

    def style_precision(self) -> Precision:
        """The precision of AdaIN's network, which is not trained."""
        return fast_precision(next(self.model.parameters()).device)

    def view_spec(self) -> ViewSpec:
        """Size and normalisation of the images."""
        spec: ViewSpec = self.loader_dict["train_ulb"].dataset.view
        return spec

    def process_batch(self, input_args: Iterable[str] | None = None, **batch: Any) -> dict[str, Any]:
        missing = [name for name in ("d_lb", "d_ulb", "x_ulb_p") if name not in batch]
        if missing:
            raise UserError(
                f"stylematch: needs domain labels and un-augmented images, but batches have no {', '.join(missing)}; "
                f"train on the datasets of semilearn_ext.usb.get_datasets"
            )
        ready: dict[str, Any] = super().process_batch(input_args, **batch)
        return ready

    def set_model(self) -> nn.Module:
        if self.args.num_domains < 2:
            raise UserError(
                f"stylematch: needs at least two source domains, but num_domains is {self.args.num_domains}; train on "
                f"the datasets of semilearn_ext.usb.get_datasets, whose configure(args) sets it"
            )
        model: nn.Module = super().set_model()
        _make_stochastic(model)
        return model

    def set_ema_model(self) -> nn.Module:
        ema_model: nn.Module = self.net_builder(num_classes=self.num_classes)
        _make_stochastic(ema_model)
        ema_model.load_state_dict(self.model.state_dict())
        return ema_model

    def train_step(
        self,
        x_lb: Tensor,
        y_lb: Tensor,
        d_lb: Tensor,
        x_ulb_w: Tensor,
        x_ulb_s: Tensor,
        x_ulb_p: Tensor,
        idx_ulb: Tensor,
        d_ulb: Tensor,
    ) -> Any:
        styled = self.restyle(self.encodings("unlabeled", x_ulb_p, idx_ulb), d_ulb)
        with self.amp_cm():
            labelled, weak, strong, style = self._views((x_lb, x_ulb_w, x_ulb_s, styled), d_lb, d_ulb)
            sup_loss = self.ce_loss(labelled.logits, y_lb, reduction="mean")
            prob = self.compute_prob(weak.logits.detach())
            target, mask = pseudo_labels(self, prob)
            losses = [self.consistency_loss(view.logits, target, "ce", mask=mask) for view in (strong, style)]
            images = self._images(labelled, d_lb, Images([weak, strong, style], prob, mask >= 1, d_ulb))
        views = StepViews(labelled, y_lb, class_weights(find_classifier(self.model)), images)
        return step_result(self, sup_loss, losses, mask, views)

    def _views(self, images: tuple[Tensor, ...], d_lb: Tensor, d_ulb: Tensor) -> list[View]:
        """Run one forward pass, as DistributedDataParallel requires; the classifier treats every view and domain as a
        separate pass. Pseudo labels come from the second view, which is classified without noise.
        """
        domains = [d_lb, *[d_ulb] * (len(images) - 1)]
        index = torch.cat([domain + view * self.args.num_domains for view, domain in enumerate(domains)])
        sample = [view != 1 for view in range(len(images)) for _ in range(self.args.num_domains)]
        self._classifier().passes = Passes(index, tuple(sample))
        output = self.model(torch.cat(images))
        sizes = [len(view) for view in images]
        return [View(*parts) for parts in zip(output["feat"].split(sizes), output["logits"].split(sizes), strict=True)]

    def _images(self, labelled: View, d_lb: Tensor, unlabelled: Images) -> dict[tuple[str, bool], Images]:
        """The unlabelled images, with and without the labelled ones, whose mask is computed without noise."""
        passes = Passes(d_lb, (False,) * self.args.num_domains)
        with torch.no_grad():
            prob = self.compute_prob(self._classifier().classify(labelled.features, passes))
        both = joined(Images([labelled], prob, confidences_mask(self, prob) >= 1, d_lb), unlabelled)
        return {
            (batch, with_labelled): both if with_labelled else unlabelled
            for batch in ("mixed", "domain")
            for with_labelled in (True, False)
        }

    def _classifier(self) -> ClassifierHead:
        classifier = find_classifier(self.model)
        assert isinstance(classifier, ClassifierHead)
        return classifier

    def restyle(self, encodings: Tensor, domain: Tensor) -> Tensor:
        """Style views of encoded images whose domains are ``domain`` (N,)."""
        return self.style.restyle(encodings, draw_partners(domain.cpu(), self.style_key()))

    def style_key(self) -> tuple[int, ...]:
        """The seed of the choice of styles."""
        return (self.args.seed, self.it, self.args.rank)

    def encodings(self, stream: str, plain: Tensor, numbers: Tensor) -> Tensor:
        """AdaIN's encodings of un-augmented images ``plain``, which have the numbers ``numbers`` in their stream."""
        return self.style.encode(plain)


def _make_stochastic(model: nn.Module) -> None:
    num_classes, num_features = class_weights(find_classifier(model)).shape
    replace_classifier(model, StochasticClassifier(num_features, num_classes))


class CachingStyleMatch(StyleMatch, SSDGBase):
    """StyleMatch on this package's engine, where batches are sorted by domain and encodings can be cached."""

    encoded_streams: tuple[str, ...] = ("unlabeled",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        data = self.context.data
        images = sum(len(self.eval_sets[stream]) for stream in self.encoded_streams)
        fits = encoded_bytes(images, data.view.size) <= KEPT_BYTES
        self.keeps_encodings = fits and data.total_steps * self.settings.batch_size > images
        self.kept: dict[str, Tensor] = {}

    @classmethod
    def check(cls, settings: Settings, data: SSDGData) -> None:
        if len(data.sources) < 2:
            raise UserError(
                f"{settings.where('source_domains')}: stylematch needs at least two source domains, but there is only "
                f"{data.sources[0]!r}; add a domain, or use fixmatch"
            )
        load_style_transfer(settings.adain_dir)

    def view_spec(self) -> ViewSpec:
        return self.context.data.view

    def style_precision(self) -> Precision:
        # ``auto`` uses the fast precision on a CPU too, although training there is in float32.
        return self.precision if self.settings.precision == "float32" else fast_precision(self.device)

    def set_ema_model(self) -> None:  # type: ignore[override]
        """Does nothing; the engine stores averaged weights in ``self.ema``."""

    def restyle(self, encodings: Tensor, domain: Tensor) -> Tensor:
        return torch.cat(self.styled(encodings.chunk(len(self.context.data.sources))))

    def styled(self, encodings: Sequence[Tensor]) -> list[Tensor]:
        """Style views of encodings that are sorted by domain, without waiting for the device."""
        sizes = [len(part) for part in encodings]
        domain = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        return list(
            self.style.restyle(torch.cat(list(encodings)), draw_partners(domain, self.style_key())).split(sizes)
        )

    def encodings(self, stream: str, plain: Tensor, numbers: Tensor) -> Tensor:
        if not self.keeps_encodings:
            return self.style.encode(plain)
        if stream not in self.kept:
            self.kept[stream] = self._encode_all(self.eval_sets[stream].positions.tolist())
        return self.kept[stream][numbers]

    def _encode_all(self, positions: list[int]) -> Tensor:
        images = self.plain_images(positions, evaluation_batch(self.settings, self.device), view="plain")
        batches = (x for _, x in images.share(0, 1))
        return torch.cat([self.style.encode(to_device(x, self.device, True)) for x in batches])
