"""From a run's evaluations to its ``result.json``: pure functions over the records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from semilearn_ext import __version__
from semilearn_ext.settings import Settings, config_hash

TARGET, SOURCE_VAL = "target/top1", "source_val/top1"


def accuracies(metrics: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Target accuracy by three protocols.

    ``last``: after the last iteration (the paper's). ``source_val``: at the evaluation with the best accuracy
    on held-out source images, the later one of a tie. ``oracle``: the best there was on the target itself,
    which nobody could have known: an upper bound, never a result.
    """
    by_source = max(reversed(metrics), key=lambda record: record[SOURCE_VAL])
    return {
        "last": metrics[-1][TARGET],
        "source_val": by_source[TARGET],
        "oracle": max(record[TARGET] for record in metrics),
    }


def summarise(settings: Settings, metrics: Sequence[Mapping[str, Any]], scale: str) -> dict[str, Any]:
    """The content of ``result.json``, the contract with whoever makes tables."""
    return {
        "dataset": settings.dataset,
        "labels_per_class": settings.labels_per_class,
        "algorithm": settings.method,
        "target_domain": settings.target_domain,
        "seed": settings.seed,
        "iterations": metrics[-1]["iteration"],
        "top1": {name: round(value, 6) for name, value in accuracies(metrics).items()},
        "seconds": round(metrics[-1]["seconds"], 1),
        "config_hash": config_hash(settings),
        "version": __version__,
        "scale": scale,
    }
