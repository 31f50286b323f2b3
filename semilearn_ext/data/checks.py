"""``ssdg data check`` and ``ssdg data split``: check that a dataset is complete and intact, and write label splits."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from semilearn_ext import files
from semilearn_ext.data.cache import find_bad
from semilearn_ext.data.decode import BadImage, read
from semilearn_ext.data.layouts import Tree
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.data.split_files import split_file_name
from semilearn_ext.data.splits import as_json, check_labels, leave_one_out
from semilearn_ext.errors import UserError
from semilearn_ext.registry import DATASETS

CLASSES_SHOWN = 12


def image_tree_spec(name: str) -> ImageTreeSpec:
    spec = DATASETS.get(name, "dataset")
    if not isinstance(spec, ImageTreeSpec):
        others = [other.name for other in DATASETS if isinstance(other, ImageTreeSpec)]
        raise UserError(f"{name!r} is not a dataset of image files (those are: {', '.join(others)})")
    return spec


def check(name: str, root: Path, progress: bool = True) -> tuple[str, list[str]]:
    """Return a report on the images of a dataset and a list of its problems, one line each."""
    spec = image_tree_spec(name)
    tree = spec.tree(root)
    problems = wrong_counts(spec, tree)
    bad = find_bad([tree.path(item) for item in tree.items], progress)
    problems += [f"{path}: corrupt or truncated image ({reason})" for path, reason in bad.items()]
    problems += [f"identical images: {', '.join(names)}" for names in duplicates(tree)]
    held_out = (
        "a random tenth of every class" if tree.held_out is None else f"{len(tree.held_out)} images, as published"
    )
    lines = [
        f"{name}: {len(tree.items)} images in {tree.root}",
        count_table(spec, tree).to_string(),
        f"source validation: {held_out}",
        f"problems: {len(problems) or 'none'}",
    ]
    return "\n".join(lines), problems


def count_table(spec: ImageTreeSpec, tree: Tree) -> pd.DataFrame:
    """Images per domain and class (with many classes, of the smallest and largest only), and the published total."""
    frame = pd.crosstab([item.domain for item in tree.items], [tree.classes[item.label] for item in tree.items])
    frame = frame.reindex(list(tree.domains), fill_value=0).rename_axis(index=None, columns=None)
    table = frame if frame.shape[1] <= CLASSES_SHOWN else frame.agg(["min", "max"], axis=1)
    table = table.assign(total=frame.sum(axis=1))
    return table.assign(published=pd.Series(spec.counts)) if spec.counts else table


def wrong_counts(spec: ImageTreeSpec, tree: Tree) -> list[str]:
    """Differences from the published numbers of images, per domain and, where they are known, per class."""
    by_domain = Counter(item.domain for item in tree.items)
    by_class = Counter((item.domain, item.label) for item in tree.items)
    compared = [(domain, by_domain[domain], published) for domain, published in spec.counts.items()]
    compared += [
        (f"{domain}/{tree.classes[label]}", by_class[domain, label], published)
        for domain, counts in spec.class_counts.items()
        for label, published in enumerate(counts)
    ]
    return [
        f"{place}: {count} images, expected {published} (the published number)"
        for place, count, published in compared
        if count != published
    ]


def duplicates(tree: Tree) -> list[list[str]]:
    """Groups of names of images with identical content."""
    names_by_digest: dict[bytes, list[str]] = defaultdict(list)
    for item in tree.items:
        try:
            names_by_digest[hashlib.sha256(read(tree.path(item))).digest()].append(item.name)
        except BadImage:
            continue
    return [names for names in names_by_digest.values() if len(names) > 1]


def write_splits(
    name: str, root: Path, labels: int, seeds: Sequence[int], out: Path, few_labels: str = "auto"
) -> list[Path]:
    """Write ``<target>_nlab<N>_seed<S>.json`` for every target and seed, in the format of the SSDG benchmark."""
    spec = image_tree_spec(name)
    tree = spec.tree(root)
    written = []
    for target in tree.domains:
        sources = [domain for domain in tree.domains if domain != target]
        for seed in seeds:
            split = leave_one_out(
                tree.items,
                dataset=name,
                target=target,
                sources=sources,
                labels_per_class=labels,
                seed=seed,
                classes=tree.classes,
                held_out=tree.held_out,
            )
            check_labels(
                split,
                tree.items,
                sources=sources,
                classes=tree.classes,
                labels_per_class=labels,
                few_labels=spec.few_labels if few_labels == "auto" else few_labels,
                where="--labels",
            )
            path = out / split_file_name(target, labels * len(tree.classes) * len(sources), seed)
            files.write_json(path, as_json(split, tree.items))
            written.append(path)
    return written
