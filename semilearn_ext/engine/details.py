"""Who is mistaken for whom, how well confidence is calibrated, and which pseudo labels are right: pure functions.

``logits`` are (N, C), ``labels`` and ``predictions`` (N,), all on the CPU: the sums are in double precision, which not
every device has. True labels of unlabelled images are used for measuring only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

BINS = 15


class Details(NamedTuple):
    """The numbers of one evaluation."""

    content: dict[str, Any]
    """For ``details.json``: ``confusion`` and ``calibration`` by set of images; ``pseudo_labels``, if there are any."""
    scalars: dict[str, float | None]
    """For the evaluation record."""


def confusion(labels: Tensor, predictions: Tensor, classes: int) -> Tensor:
    """(C, C) numbers of images, by true class (row) and predicted class (column)."""
    pairs = labels * classes + predictions
    return torch.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def calibration(logits: Tensor, labels: Tensor, bins: int = BINS) -> list[dict[str, Any]]:
    """Count, mean confidence and accuracy of the images in each bin of confidence, the highest probability.

    Bin k of M has the confidences in (k / M, (k + 1) / M]. Confidence and accuracy are None in a bin without images.
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
            "accuracy": right / count if count else None,
        }
        for count, total, right in zip(counts, *sums, strict=True)
    ]


def calibration_error(bins: list[dict[str, Any]]) -> float:
    """Expected calibration error (Guo et al., ICML 2017, Eq. 3): the mean of |accuracy - confidence| over all images,
    both taken from the image's bin."""
    images = sum(each["count"] for each in bins)
    return sum(each["count"] * abs(each["accuracy"] - each["confidence"]) for each in bins if each["count"]) / images


def pseudo_labels(labels: Tensor, predictions: Tensor, passed: Tensor, classes: int) -> dict[str, Any]:
    """By class, how many pseudo labels pass the threshold and how good they are.

    Args:
        passed: (N,) whether the image passes the threshold.

    Returns:
        ``confusion`` (C, C) of the images that pass. ``precision``: of those with this pseudo label, the share whose
        true class it is. ``recall``: of all images of this class, the share that pass with the right pseudo label.
        None where there is no such image.
    """
    counts = confusion(labels[passed], predictions[passed], classes)
    right = counts.diagonal().tolist()
    return {
        "confusion": counts.tolist(),
        "precision": [_share(k, n) for k, n in zip(right, counts.sum(0).tolist(), strict=True)],
        "recall": [
            _share(k, n) for k, n in zip(right, torch.bincount(labels, minlength=classes).tolist(), strict=True)
        ],
    }


def macro_mean(shares: list[float | None]) -> float | None:
    """The mean over the classes that have a value; None when none has."""
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None


def measure_details(
    logits: dict[str, Tensor], labels: dict[str, Tensor], weight: Tensor | None, classes: tuple[str, ...]
) -> Details:
    """Everything above.

    Args:
        logits, labels: by set of images: ``target``, ``source_val`` and, unless the method has none, ``unlabeled``.
        weight: (N,) of the unlabelled images; a weight of 1 passes the threshold. None: the method has no threshold.
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


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
