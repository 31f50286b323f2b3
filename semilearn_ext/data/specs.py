"""The spec of a dataset that is a tree of image files. Does not import torch.

To add your own dataset in a file passed with ``--extend``:

- An ordinary tree, ``<domain>/<class>/*``, with or without the folders ``train`` and ``val`` in every domain, needs no
  code::

      from semilearn_ext.extend import ImageTreeSpec, declare

      declare(
          ImageTreeSpec(
              name="vlcs",
              title="VLCS",
              about="5 classes of photos",
              domains=("caltech", "labelme", "sun", "voc"),
              num_classes=5,
              folders=("VLCS",),
          ),
          __file__,
      )

- For another layout, pass ``recognise=function``, a function that lists the images with the help of
  :mod:`semilearn_ext.data.layouts`.
- For data that are not image files, decorate a function ``load(spec, settings) -> Loaded`` with
  ``@register(DatasetSpec(...))``; ``Loaded`` is in :mod:`semilearn_ext.data.loaded`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from semilearn_ext.data.layouts import Tree, domain_class_tree
from semilearn_ext.errors import UserError
from semilearn_ext.files import subfolders
from semilearn_ext.specs import DatasetSpec


def _by_domain_and_class(spec: ImageTreeSpec, root: Path) -> Tree | None:
    return domain_class_tree(root, spec.domains)


@dataclass(frozen=True, kw_only=True)
class ImageTreeSpec(DatasetSpec):
    """Image files in published folder layouts."""

    implementation: str = "semilearn_ext.data.image_tree:load"
    folders: tuple[str, ...] = ()
    """Possible names of its folder inside ``data_dir``, the usual name first. ``data_dir`` itself is tried as well."""
    layouts: tuple[str, ...] = ("<domain>/<class>/*",)
    """The accepted layouts, for error messages."""
    recognise: Callable[[ImageTreeSpec, Path], Tree | None] = _by_domain_and_class
    """Lists the images below a folder; returns None if the folder does not have one of the layouts."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Published number of images per domain."""
    class_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Published number of images per domain and class, in the order of the classes, where it is known."""
    hub: str = ""
    """Its repository on the Hugging Face Hub, for ``ssdg data prepare``."""
    by_hand: tuple[str, ...] = ()
    """Download instructions for a dataset that is not on the Hub; ``{root}`` is filled in."""

    def tree(self, data_dir: Path) -> Tree:
        """List the images below ``data_dir``, in any of the layouts."""
        for folder in [*(data_dir / name for name in self.folders), data_dir]:
            tree = self.recognise(self, folder) if folder.is_dir() else None
            if tree is not None:
                self._check_classes(tree)
                return replace(tree, folder=folder)
        content = f"it contains {', '.join(subfolders(data_dir)[:6]) or 'no folders'}" if data_dir.is_dir() else ""
        raise UserError(
            f"data_dir: no {self.name} in {data_dir} ({content or 'the folder does not exist'}); "
            f"expected {' or '.join(self.layouts)}{self._advice()}"
        )

    def _check_classes(self, tree: Tree) -> None:
        if self.num_classes and len(tree.classes) != self.num_classes:
            raise UserError(
                f"{tree.root}: {self.name} has {self.num_classes} classes, found {len(tree.classes)}: "
                f"{', '.join(tree.classes[:8])}…{self._advice()}"
            )

    def _advice(self) -> str:
        if not self.hub and not self.by_hand:
            return ""
        return f"; {'get it' if self.hub else 'see how to get it'} with: ssdg data prepare {self.name} --data_dir DIR"
