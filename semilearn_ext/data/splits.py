"""Leave-one-domain-out label splits: pure functions of names, without any images.

Which images of a class are labelled depends only on the dataset, domain, class, seed and image names: the names are
sorted by a hash of all these, and the first n are labelled. The split is therefore independent of the order of listing,
the platform and the target domain, and the images labelled with 5 labels per class are among those with 10. The
held-out source validation images are chosen in the same way but without the seed, so they are the same for every seed.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from semilearn_ext.errors import UserError

HELD_OUT = 0.1


class Item(NamedTuple):
    """One image: its name within the dataset (a path), class, domain, and the key that determines its place in a split.

    The key is the file name without the folders of class and domain, whose names differ between copies of a dataset.
    """

    name: str
    label: int
    domain: str
    key: str


class Split(NamedTuple):
    """Positions in the list of items."""

    labelled: list[int]
    unlabelled: list[int]
    source_val: list[int]
    target: list[int]


def order_by_hash(names: Sequence[str], *key: object) -> list[int]:
    """Positions of ``names``, sorted by a hash of ``key`` and the name."""
    prefix = "/".join(map(str, key))
    digests = [hashlib.sha256(f"{prefix}/{name}".encode("utf-8", "surrogateescape")).digest() for name in names]
    return sorted(range(len(names)), key=digests.__getitem__)


def leave_one_out(
    items: Sequence[Item],
    *,
    dataset: str,
    target: str,
    sources: Sequence[str],
    labels_per_class: int,
    seed: int,
    classes: Sequence[str],
    held_out: frozenset[str] | None = None,
) -> Split:
    """Split ``items`` for one target domain. If a class has too few training images, all of them are labelled.

    Args:
        held_out: names of the images that the dataset holds out for validation; None for a tenth of every class.
    """
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for position, item in enumerate(items):
        groups[item.domain, item.label].append(position)
    split = Split([], [], [], [position for position, item in enumerate(items) if item.domain == target])
    for domain in sources:
        for label, name in enumerate(classes):
            group = groups[domain, label]
            if held_out is None:
                validation, rest = _hold_out(group, items, (dataset, domain, name))
            else:
                validation = [p for p in group if items[p].name in held_out]
                rest = [p for p in group if items[p].name not in held_out]
            order = order_by_hash([items[p].key for p in rest], dataset, domain, name, "labels", seed)
            ordered = [rest[k] for k in order]
            split.source_val.extend(validation)
            split.labelled.extend(ordered[:labels_per_class])
            split.unlabelled.extend(ordered[labels_per_class:])
    return split


def _hold_out(group: Sequence[int], items: Sequence[Item], key: tuple[str, str, str]) -> tuple[list[int], list[int]]:
    order = order_by_hash([items[p].key for p in group], *key, "validation")
    count = math.ceil(HELD_OUT * len(group))
    ordered = [group[k] for k in order]
    return ordered[:count], ordered[count:]


def check_labels(
    split: Split,
    items: Sequence[Item],
    *,
    sources: Sequence[str],
    classes: Sequence[str],
    labels_per_class: int,
    few_labels: str,
    where: str,
) -> dict[str, int]:
    """Raise an error unless every class of every source domain has ``labels_per_class`` labels.

    A class with fewer training images is an error (``few_labels: error``), or all its images must be labelled
    (``take_all``). Returns these classes: ``"domain/class"`` to the number of labels.
    """
    labelled, unlabelled = (
        Counter((items[p].domain, items[p].label) for p in part) for part in (split.labelled, split.unlabelled)
    )
    short: dict[str, int] = {}
    for domain, (label, name) in itertools.product(sources, enumerate(classes)):
        count = labelled[domain, label]
        if count > labels_per_class or (count < labels_per_class and unlabelled[domain, label]):
            raise UserError(
                f"{where}: {labels_per_class} labels per class requested, but class {name!r} of domain {domain!r} "
                f"has {count}"
            )
        if count < labels_per_class:
            short[f"{domain}/{name}"] = count
    if short and few_labels == "error":
        first, count = next(iter(short.items()))
        more = f" and {len(short) - 1} more classes have too few" if len(short) > 1 else ""
        raise UserError(
            f"{where}: {labels_per_class} labels per class requested, but {first} has only {count} training "
            f"images{more}; request fewer, or label all images of such classes with --few_labels take_all"
        )
    return short


def as_json(split: Split, items: Sequence[Item]) -> dict[str, list[list[object]]]:
    """The SSDG benchmark's format, ``[path, label, domain]`` for every image, plus our validation images."""

    def rows(positions: Sequence[int]) -> list[list[object]]:
        return [[items[p].name, items[p].label, items[p].domain] for p in positions]

    return {
        "train_x": rows(split.labelled),
        "train_u": rows(split.unlabelled),
        "val": rows(split.source_val),
    }
