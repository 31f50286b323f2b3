"""StyleMatch: FixMatch with a stochastic classifier and a style view.

Zhou, Loy and Liu, "Semi-Supervised Domain Generalization with Stochastic StyleMatch" (IJCV 2023). Built on USB's
FixMatch: its threshold, pseudo labels and options are used as they are. All views of the unlabelled images go through
the network in one pass, as in USB's FixMatch; ``reference_step`` has the benchmark's own way.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from semilearn_ext.algorithms.fixmatch_parts import FixMatchParts
from semilearn_ext.algorithms.style_view import StyleView, draw_partners
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.data.ssdg import SSDGData
from semilearn_ext.engine.device import to_device
from semilearn_ext.errors import UserError
from semilearn_ext.nets.adain import encoded_bytes, load_style_transfer
from semilearn_ext.nets.classifier_net import replace_classifier
from semilearn_ext.nets.stochastic_classifier import StochasticClassifier
from semilearn_ext.settings import Settings
from semilearn_ext.usb import ALGORITHMS

# Encodings of un-augmented images never change: kept where they fit in so much memory and will be needed again.
KEPT_BYTES = 2**28


@ALGORITHMS.register("stylematch")
class StyleMatch(FixMatchParts):
    """See the module. ``style_alpha`` is the share of the other domain's style."""

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
                f"{settings.where('source_domains')}: stylematch takes its styles from another source domain, but "
                f"there is only {data.sources[0]!r}; add a domain, or use fixmatch"
            )
        load_style_transfer(settings.adain_dir)

    @functools.cached_property
    def style(self) -> StyleView:
        """Made when it is first needed: a finished run predicts without AdaIN's weights."""
        transfer = load_style_transfer(self.settings.adain_dir)
        return StyleView(transfer, self.context.data.view, self.settings.options["style_alpha"], self.device)

    def set_model(self) -> Any:
        model = super().set_model()
        replace_classifier(model, StochasticClassifier(model.num_features, self.num_classes))
        return model

    def train_step(
        self, x_lb: Tensor, y_lb: Tensor, x_ulb_w: Tensor, x_ulb_s: Tensor, x_ulb_p: Tensor, idx_ulb: Tensor
    ) -> Any:
        styled = self.styled(self.encodings("unlabeled", x_ulb_p, idx_ulb))
        with self.amp_cm():
            feat = self.model(torch.cat((x_lb, x_ulb_w, x_ulb_s, styled)), only_feat=True)
            labelled, weak, *others = feat.split([len(y_lb), *[len(x_ulb_w)] * 3])
            sup_loss = self.ce_loss(self.classify(labelled), y_lb, reduction="mean")
            losses, mask = self.unlabelled_losses(weak, others)
        return self.outcome(sup_loss, losses, mask, {"x_lb": labelled, "x_ulb_w": weak, "x_ulb_s": others})

    def styled(self, encodings: Tensor) -> Tensor:
        """Style views of encodings that lie domain after domain."""
        key = (self.settings.seed, self.it, self.context.processes.rank)
        return self.style.restyle(encodings, draw_partners(len(encodings), self.domains, key))

    def encodings(self, stream: str, plain: Tensor, numbers: Tensor) -> Tensor:
        """AdaIN's encodings of un-augmented images ``plain``, number ``numbers`` of their stream."""
        if not self.keeps_encodings:
            return self.style.encode(plain)
        if stream not in self.kept:
            self.kept[stream] = self._encode_all(self.eval_sets[stream])
        return self.kept[stream][numbers]

    def _encode_all(self, images: PlainImages) -> Tensor:
        batches = (x for _, x in images.share(0, 1))
        return torch.cat([self.style.encode(to_device(x, self.device, True)) for x in batches])
