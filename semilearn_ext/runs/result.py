"""Compute the content of ``result.json`` from the evaluations of a run, with pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semilearn_ext import __version__
from semilearn_ext.registry import method_title
from semilearn_ext.settings import Settings, config_hash
from semilearn_ext.settings.content import dataset_name

FORMAT = 2
"""The version of ``result.json`` that is written and read."""
PROTOCOLS = ("last", "source_val", "oracle")
AVERAGES = ("ema", "swa")
"""Protocols for runs with averaged weights (the setting ``average``)."""
TARGET, SOURCE_VAL = "target/top1", "source_val/top1"


def accuracies(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Accuracy on the target domain under every protocol.

    - ``last``: after the last iteration, as in the paper.
    - ``source_val``: at the evaluation with the best accuracy on held-out source images, the later one in a tie.
    - ``oracle``: at the best evaluation on the target domain itself. It requires target labels and is an upper bound.
    - ``ema``, ``swa``: of averaged weights after the last iteration, if the run has them.
    """
    by_source = max(reversed(metrics), key=lambda record: record[SOURCE_VAL])
    return {
        "last": metrics[-1][TARGET],
        "source_val": by_source[TARGET],
        "oracle": max(record[TARGET] for record in metrics),
        **{name: metrics[-1][f"{TARGET}.{name}"] for name in AVERAGES if f"{TARGET}.{name}" in metrics[-1]},
    }


def scalars(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers in an evaluation record, without those that could not be measured (None)."""
    return {name: value for name, value in record.items() if type(value) in (int, float)}


def summarise(settings: Settings, metrics: Sequence[Mapping[str, Any]], scale: str, images: str = "") -> dict[str, Any]:
    """The content of ``result.json``. ``images`` is the SHA-256 of the dataset's images, if known."""
    last = metrics[-1]
    return {
        "format": FORMAT,
        "dataset": settings.dataset,
        "dataset_name": dataset_name(settings),
        "images_sha256": images or None,
        "labels_per_class": settings.labels_per_class,
        "base": settings.base,
        "plugins": list(settings.plugins),
        "variant": settings.variant,
        "step": settings.step,
        "title": method_title(settings.base, settings.plugins, settings.variant),
        "options": dict(settings.options),
        "target_domain": settings.target_domain,
        "seed": settings.seed,
        "iterations": last["iteration"],
        "top1": {name: round(value, 6) for name, value in accuracies(metrics).items()},
        "metrics": scalars(last),
        "seconds": round(last["seconds"], 1),
        "config_hash": config_hash(settings),
        "version": __version__,
        "scale": scale,
    }
