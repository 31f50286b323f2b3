"""Leave-one-domain-out label splits: pure functions over names, no images in sight.

Which images of a class are labelled depends on (dataset, domain, class, seed) and the images' own names alone:
names are put in the order of a hash of all these, and the first n are labelled. So listing order, platform and
the domain left out do not matter, and the 5-label set is the beginning of the 10-label set. The held-out source
validation images are chosen the same way without the seed: every seed validates on the same ones.
"""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from semilearn_ext.errors import UserError

HELD_OUT = 0.1


class Item(NamedTuple):
    """One image: its name within the benchmark (a path), class, domain, and what its place in a split depends on.

    The key is the file's own name, without the folders that tell class and domain: mirrors of a benchmark call
    those differently.
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
    """Positions of ``names``, ordered by a hash of ``key`` and the name."""
    prefix = "/".join(map(str, key))
    digests = [hashlib.sha256(f"{prefix}/{name}".encode()).digest() for name in names]
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
    where: str = "labels_per_class",
) -> Split:
    """Split ``items`` for one target domain. Raises UserError when a class has too few images.

    Args:
        held_out: names of the images the benchmark itself holds out for validation; None: a tenth of every class.
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
            if len(rest) < labels_per_class:
                raise UserError(
                    f"{where}: {labels_per_class} labels asked for, but class {name!r} of domain {domain!r} "
                    f"has {len(rest)} training images"
                )
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


def as_json(split: Split, items: Sequence[Item], sources: Sequence[str]) -> dict[str, list[list[object]]]:
    """The ssdg-benchmark's own form: ``[path, label, domain number]``, and the validation images beside it."""

    def rows(positions: Sequence[int]) -> list[list[object]]:
        return [[items[p].name, items[p].label, sources.index(items[p].domain)] for p in positions]

    return {
        "train_x": rows(split.labelled),
        "train_u": rows(split.unlabelled),
        "val": rows(split.source_val),
    }
