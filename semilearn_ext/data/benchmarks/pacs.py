"""PACS: Li et al., "Deeper, Broader and Artier Domain Generalization" (ICCV 2017)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from semilearn_ext.data.layouts import Tree, find_domains, list_tree, read_list
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.errors import UserError


def recognise(spec: ImageTreeSpec, root: Path) -> Tree | None:
    for images in (root / "images", root):
        folders = find_domains(images, spec.domains)
        if folders is not None:
            tree = list_tree(images, folders)
            return replace(tree, held_out=_held_out(root / "splits", tree))
    return None


def _held_out(splits: Path, tree: Tree) -> frozenset[str] | None:
    """The images in the official crossval lists. All must exist; otherwise the lists belong to another copy of PACS."""
    if not splits.is_dir():
        return None
    existing = {item.name for item in tree.items}
    held_out = [name for d in tree.domains for name, _ in read_list(splits / f"{d}_crossval_kfold.txt", d)]
    missing = [name for name in held_out if name not in existing]
    if missing:
        raise UserError(
            f"{splits}: {len(missing)} listed images do not exist, for example {missing[0]}; remove these lists, or "
            f"use the copy of PACS that they belong to"
        )
    return frozenset(held_out)


PACS = ImageTreeSpec(
    name="pacs",
    title="PACS",
    about="7 classes: art_painting, cartoon, photo, sketch",
    paper="https://arxiv.org/abs/1710.03077",
    domains=("art_painting", "cartoon", "photo", "sketch"),
    num_classes=7,
    in_paper=True,
    folders=("pacs", "PACS", "pacs_data"),
    layouts=("pacs/images/<domain>/<class>/* with pacs/splits/*_kfold.txt", "pacs/<domain>/<class>/*"),
    recognise=recognise,
    counts={"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929},
    class_counts={
        "art_painting": (379, 255, 285, 184, 201, 295, 449),
        "cartoon": (389, 457, 346, 135, 324, 288, 405),
        "photo": (189, 202, 182, 186, 199, 280, 432),
        "sketch": (772, 740, 753, 608, 816, 80, 160),
    },
    splits_folder="splits_ssdg",
    hub="flwrlabs/pacs",
)
