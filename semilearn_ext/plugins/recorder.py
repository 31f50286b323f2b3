"""Record a USB training step and convert it to a :class:`StepOutput`.

USB's algorithms do not return what they compute, but they all do three things: they get their batch from
``process_batch``, they classify every view with the network's classifier, and they call their ``MaskingHook`` to select
confident images. The recorder observes these three calls. A step that does not make them, or makes them in an unknown
order, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import class_weights, find_classifier
from semilearn_ext.nets.heads import ClassifierHead, Passes
from semilearn_ext.plugins.base import StepOutput, View, Wants
from semilearn_ext.plugins.confidence import confidence_mask
from semilearn_ext.plugins.usb_protocol import UsbAlgorithm

LABELLED, WEAK = "x_lb", "x_ulb_w"


class StepRecorder:
    """Records one step of a USB algorithm at a time.

    Args:
        model: the network, with the classifier inside.
        names: the parameters of the algorithm's ``train_step``, in order.
        num_domains: K; 0 without domain labels.
    """

    def __init__(self, model: nn.Module, names: Sequence[str], num_domains: int) -> None:
        self.classifier = find_classifier(model)
        self.num_domains = num_domains
        self.views = [name for name in names if name.startswith("x_") and not name.endswith("_rot")]
        self.clear()
        self.classifier.register_forward_hook(self._record_call)

    def clear(self) -> None:
        """Release the tensors of a step."""
        self.active = False
        self.rows: dict[str, int] = {}
        self.labels: Tensor | None = None
        self.domains: dict[str, Tensor] = {}
        self.calls: list[tuple[Tensor, Tensor]] = []
        self.masking: tuple[Mapping[str, Any], Tensor] | None = None

    def start(self, batch: Mapping[str, Any], domains: dict[str, Tensor]) -> None:
        """Start recording a step with ``batch``, whose views determine the number of rows of each."""
        self.clear()
        self.active = True
        self.rows = {name: _length(batch[name]) for name in self.views if name in batch}
        self.labels = batch.get("y_lb")
        self.domains = domains
        if isinstance(self.classifier, ClassifierHead) and domains:
            self.classifier.passes = self._passes()

    def see_masking(self, arguments: Mapping[str, Any], mask: Tensor) -> None:
        """Record the first mask of a step, which is that of the unlabelled images; DeFixMatch computes a second one."""
        if self.active and self.masking is None:
            self.masking = (arguments, mask)

    def _record_call(self, _: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        if self.active and torch.is_grad_enabled() and logits.requires_grad:
            self.calls.append((inputs[0], logits))

    def output(self, algorithm: UsbAlgorithm, wants: Wants) -> StepOutput:
        """The recorded step, with the views that a plug-in wants."""
        views = self._split(algorithm)
        if self.masking is None or self.labels is None:
            raise UserError(
                f"{algorithm.args.algorithm}: plug-ins need the mask of confident unlabelled images, but this "
                f"algorithm did not call its MaskingHook"
            )
        arguments, mask = self.masking
        prob = arguments["logits_x_ulb"].detach()
        if arguments.get("softmax_x_ulb", True):
            prob = prob.softmax(dim=1)
        # If the base has soft weights instead of a mask, an image is confident if its weight is 1.
        confident = mask.detach() >= 1
        unlabelled = [view for name, view in views.items() if name.startswith("x_ulb")]
        domain = self.domains.get("d_ulb")
        if wants.labelled:
            labelled = views[LABELLED]
            logits = self._pseudo_logits(labelled.features.detach(), "d_lb")
            labelled_mask = confidence_mask(algorithm, logits, logits)
            assert labelled_mask is not None
            prob = torch.cat([logits.softmax(dim=1).to(prob.dtype), prob])
            confident = torch.cat([labelled_mask >= 1, confident])
            unlabelled = [_joined(labelled, view) for view in unlabelled[:1]]
            domain = None if domain is None else torch.cat([self.domains["d_lb"], domain])
        return StepOutput(
            labelled=views[LABELLED],
            labels=self.labels,
            unlabelled=select_views(unlabelled, wants.views),
            prob=prob,
            mask=confident,
            class_weights=class_weights(self.classifier),
            domain=domain,
            losses={"total_loss": algorithm.out_dict["loss"]},
        )

    def _split(self, algorithm: UsbAlgorithm) -> dict[str, View]:
        """The recorded rows of every view. All of USB's steps classify their views in the order of ``train_step``."""
        expected = sum(self.rows.values())
        recorded = sum(len(logits) for _, logits in self.calls)
        if recorded != expected:
            hint = "set use_cat to true" if recorded < expected else "call process_batch before every train_step"
            raise UserError(
                f"{algorithm.args.algorithm}: plug-ins need the gradient of every view ({expected} rows: "
                f"{', '.join(self.rows)}), but {recorded} rows were classified with gradient; {hint}"
            )
        features, logits = (torch.cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*self.calls, strict=True))
        sizes = list(self.rows.values())
        pieces = zip(self.rows, features.split(sizes), logits.split(sizes), strict=True)
        return {name: View(rows, scores) for name, rows, scores in pieces}

    @torch.no_grad()
    def _pseudo_logits(self, features: Tensor, key: str) -> Tensor:
        """Logits without noise and without mixed precision."""
        features = features.to(class_weights(self.classifier).dtype)
        if isinstance(self.classifier, ClassifierHead):
            domain = self.domains[key]
            return self.classifier.classify(features, Passes(domain, (False,) * self.num_domains))
        logits: Tensor = self.classifier(features)
        return logits

    def _passes(self) -> Passes:
        """One pass per view and domain, without noise for the weak view, which provides the pseudo labels."""
        index, sample = [], []
        for number, name in enumerate(self.rows):
            domain = self.domains["d_lb" if name.startswith(LABELLED) else "d_ulb"]
            index.append(domain + number * self.num_domains)
            sample += [name != WEAK] * self.num_domains
        return Passes(torch.cat(index), tuple(sample))


def select_views(views: list[View], wanted: str) -> list[View]:
    """Select ``weak``, ``strong`` (the weak view if there is no other) or ``all`` of ``views``, the weak one first."""
    if wanted == "weak":
        return views[:1]
    return views[1:] if wanted == "strong" and len(views) > 1 else views


def _joined(first: View, second: View) -> View:
    return View(torch.cat([first.features, second.features]), torch.cat([first.logits, second.logits]))


def _length(images: Any) -> int:
    """The number of rows of a batch, which is a dict of tensors for text."""
    return len(next(iter(images.values()))) if isinstance(images, dict) else len(images)
