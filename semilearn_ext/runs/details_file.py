"""Check the content of ``details.json``, which may come from somebody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def check_details(content: Mapping[str, Any], where: str) -> None:
    """Raise a ValueError if the content is not that of :func:`semilearn_ext.engine.details.measure_details`."""
    classes, images = (content.get(name) for name in ("classes", "images")) if isinstance(content, dict) else (0, 0)
    if not isinstance(classes, list) or not classes or not all(isinstance(name, str) for name in classes):
        raise ValueError(f"{where}: no names of classes")
    if not isinstance(images, dict) or not images:
        raise ValueError(f"{where}: no images")
    for name, measured in images.items():
        if not isinstance(measured, dict) or not _is_confusion(measured.get("confusion"), len(classes)):
            raise ValueError(f"{where}: {name}: no confusion counts of {len(classes)} classes")
        bins = measured.get("calibration")
        if not isinstance(bins, list) or not bins or not all(map(_is_bin, bins)):
            raise ValueError(f"{where}: {name}: no calibration")


def _is_confusion(value: Any, classes: int) -> bool:
    """Whether ``value`` contains (C, C) counts."""
    return (
        isinstance(value, list)
        and len(value) == classes
        and all(isinstance(row, list) and len(row) == classes and all(map(_is_count, row)) for row in value)
    )


def _is_bin(value: Any) -> bool:
    if not isinstance(value, dict) or not _is_count(value.get("count")):
        return False
    shares = [value.get(name) for name in ("confidence", "accuracy")]
    return all(map(_is_share, shares)) if value["count"] else shares == [None, None]


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**53
