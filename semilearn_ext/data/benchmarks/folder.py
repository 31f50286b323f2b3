"""The user's own images: every folder in ``data_dir`` is a domain."""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.data.layouts import Tree, list_tree
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.files import subfolders


def recognise(spec: ImageTreeSpec, root: Path) -> Tree | None:
    return list_tree(root, {name: name for name in subfolders(root)})


FOLDER = ImageTreeSpec(
    name="folder",
    title="folder",
    about="your own images: data_dir/<domain>/<class>/*",
    layouts=("<domain>/<class>/*",),
    recognise=recognise,
)
