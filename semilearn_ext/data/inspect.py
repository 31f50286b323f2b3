"""``data check`` and ``data split``: a benchmark's counts and broken images, and its published label splits."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from semilearn_ext import files
from semilearn_ext.data import trees
from semilearn_ext.data.cache import find_bad
from semilearn_ext.data.catalog import BENCHMARKS, Folder, OnDisk
from semilearn_ext.data.decode import BadImage, read
from semilearn_ext.data.splits import as_json, leave_one_out
from semilearn_ext.errors import UserError

CLASSES_SHOWN = 12


def find_tree(name: str, root: Path) -> trees.Tree:
    benchmark = BENCHMARKS[name]() if name in BENCHMARKS else None
    if not isinstance(benchmark, OnDisk | Folder):
        known = [key for key, make in BENCHMARKS.items() if isinstance(make(), OnDisk | Folder)]
        raise UserError(f"{name!r} is not a benchmark of image files (those are: {', '.join(known)})")
    return benchmark.tree(root)


def check(name: str, root: Path, progress: bool = True) -> tuple[str, list[str]]:
    """A report on the tree, and everything that is wrong with it, a line each."""
    tree = find_tree(name, root)
    problems = wrong_counts(name, tree)
    bad = find_bad([tree.path(item) for item in tree.items], progress)
    problems += [f"{path}: not a whole image ({reason})" for path, reason in bad.items()]
    problems += [f"the same image more than once: {', '.join(names)}" for names in duplicates(tree)]
    held_out = "a tenth of every class, by us" if tree.held_out is None else f"{len(tree.held_out)} images, published"
    lines = [
        f"{name}: {len(tree.items)} images in {tree.root}",
        count_table(name, tree).to_string(),
        f"source validation: {held_out}",
        f"problems: {len(problems) or 'none'}",
    ]
    return "\n".join(lines), problems


def count_table(name: str, tree: trees.Tree) -> pd.DataFrame:
    """Images by domain and class (or the smallest and largest class, when there are many), and the published sum."""
    frame = pd.crosstab([item.domain for item in tree.items], [tree.classes[item.label] for item in tree.items])
    frame = frame.reindex(list(tree.domains), fill_value=0).rename_axis(index=None, columns=None)
    table = frame if frame.shape[1] <= CLASSES_SHOWN else frame.agg(["min", "max"], axis=1)
    table = table.assign(total=frame.sum(axis=1))
    published = getattr(BENCHMARKS[name](), "counts", None)
    return table.assign(published=pd.Series(published)) if published else table


def wrong_counts(name: str, tree: trees.Tree) -> list[str]:
    """Where the numbers are not the published ones: by domain, and by class where those are known."""
    benchmark = BENCHMARKS[name]()
    if not isinstance(benchmark, OnDisk):
        return []
    by_domain = Counter(item.domain for item in tree.items)
    by_class = Counter((item.domain, item.label) for item in tree.items)
    compared = [(domain, by_domain[domain], count) for domain, count in benchmark.counts.items()]
    compared += [
        (f"{domain}/{tree.classes[label]}", by_class[domain, label], count)
        for domain, counts in benchmark.class_counts.items()
        for label, count in enumerate(counts)
    ]
    return [f"{place}: {found} images, published are {count}" for place, found, count in compared if found != count]


def duplicates(tree: trees.Tree) -> list[list[str]]:
    """Names of images with the very same content, together."""
    same: dict[bytes, list[str]] = defaultdict(list)
    for item in tree.items:
        try:
            same[hashlib.sha256(read(tree.path(item))).digest()].append(item.name)
        except BadImage:
            continue
    return [names for names in same.values() if len(names) > 1]


def write_splits(name: str, root: Path, labels: int, seeds: Sequence[int], out: Path) -> list[Path]:
    """``<target>_nlab<N>_seed<S>.json`` for every target and seed, in the benchmark's own form."""
    tree = find_tree(name, root)
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
                where="--labels",
            )
            path = out / f"{target}_nlab{len(split.labelled)}_seed{seed}.json"
            files.write_json(path, as_json(split, tree.items, sources))
            written.append(path)
    return written
