"""Confusion matrices, calibration and the quality of pseudo labels, as pure functions.

``logits`` are (N, C), ``labels`` and ``predictions`` (N,), all on the CPU, because the sums are in double precision,
which not every device supports. The true labels of unlabelled images are used only for these measurements.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

BINS = 15


class Details(NamedTuple):
    """The numbers of one evaluation."""

    content: dict[str, Any]
    """For ``details.json``: ``confusion`` and ``calibration`` per set of images, and ``pseudo_labels``, if any."""
    scalars: dict[str, float | None]
    """For the evaluation record."""


def confusion(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """(C, C) numbers of images, by true class (row) and predicted class (column)."""
    pairs = labels * classes + predictions
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def calibration(logits: Tensor, labels: Tensor, bins: int = BINS) -> list[dict[str, Any]]:
    """Count, mean confidence and accuracy of the images in each bin of confidence (the highest probability).

    Bin k of M contains the confidences in (k / M, (k + 1) / M]. Confidence and accuracy are None in an empty bin.
    """
    confidence, prediction = logits.double().softmax(1).max(1)
    correct = (prediction == labels).double()
    edges = torch.arange(1, bins, dtype=torch.float64) / bins
    number = torch.bucketize(confidence, edges)
    counts = torch.bincount(number, minlength=bins).tolist()
    sums = [torch.bincount(number, values, minlength=bins).tolist() for values in (confidence, correct)]
    return [
        {
            "count": count,
            "confidence": total / count if count else None,
            "accuracy": hits / count if count else None,
        }
        for count, total, hits in zip(counts, *sums, strict=True)
    ]


def calibration_error(bins: list[dict[str, Any]]) -> float:
    """Expected calibration error (Guo et al., ICML 2017, https://arxiv.org/abs/1706.04599, Eq. 3).

    It is the mean over all images of |accuracy - confidence| of the image's bin.
    """
    images = sum(bin_["count"] for bin_ in bins)
    return sum(bin_["count"] * abs(bin_["accuracy"] - bin_["confidence"]) for bin_ in bins if bin_["count"]) / images


def pseudo_labels(labels: Tensor, predictions: Tensor, passed: Tensor, classes: int) -> dict[str, Any]:
    """The number and the quality of the pseudo labels above the threshold, per class.

    Args:
        passed: (N,) whether the image passes the threshold.

    Returns:
        ``confusion``: (C, C) of the images that pass. ``precision``: share of the passing images with this pseudo label
        that belong to this class. ``recall``: share of all images of this class that pass with the correct pseudo
        label. None if there are no such images.
    """
    counts = confusion(labels[passed], predictions[passed], classes)
    correct = counts.diagonal().tolist()
    return {
        "confusion": counts.tolist(),
        "precision": [_share(k, n) for k, n in zip(correct, counts.sum(0).tolist(), strict=True)],
        "recall": [
            _share(k, n) for k, n in zip(correct, torch.bincount(labels, minlength=classes).tolist(), strict=True)
        ],
    }


def macro_mean(shares: list[float | None]) -> float | None:
    """The mean over the classes that have a value; None if no class has one."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def measure_details(
    logits: dict[str, Tensor], labels: dict[str, Tensor], weight: Tensor | None, classes: tuple[str, ...]
) -> Details:
    """Compute all of the above.

    Args:
        logits, labels: per set of images: ``target``, ``source_val`` and, if the method uses them, ``unlabeled``.
        weight: (N,) of the unlabelled images; a weight of 1 passes the threshold. None if the method has no threshold.
    """
    content: dict[str, Any] = {"classes": list(classes), "images": {}, "pseudo_labels": None}
    scalars: dict[str, float | None] = {}
    for name, scores in logits.items():
        scores = scores.cpu()
        bins = calibration(scores, labels[name])
        counts = confusion(labels[name], scores.argmax(1), len(classes))
        content["images"][name] = {"confusion": counts.tolist(), "calibration": bins}
        scalars[f"{name}/ece"] = calibration_error(bins)
    if weight is not None:
        predictions = logits["unlabeled"].cpu().argmax(1)
        measured = pseudo_labels(labels["unlabeled"], predictions, weight.cpu() >= 1, len(classes))
        content["pseudo_labels"] = measured
        for share in ("precision", "recall"):
            scalars[f"unlabeled/pseudo_{share}"] = macro_mean(measured[share])
    return Details(content, scalars)


def _share(part: int, total: int) -> float | None:
    return part / total if total else None
