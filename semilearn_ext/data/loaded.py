"""The result of loading a dataset: its images, classes and domains. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from semilearn_ext.data.splits import Item
from semilearn_ext.errors import UserError, shown
from semilearn_ext.specs import DatasetSpec

if TYPE_CHECKING:
    from torch import Tensor


class ImageStore(Protocol):
    """Decoded images by position: ``store[positions]`` is uint8 (N, 3, H, W). A tensor is an image store too."""

    def __getitem__(self, positions: Tensor) -> Tensor: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Loaded:
    """The images of a dataset. Positions index ``store``, ``test_store`` and ``items`` alike."""

    store: ImageStore
    """Whole images, squashed to a square: the input of training views, style views and prototypes."""
    items: list[Item]
    classes: tuple[str, ...]
    held_out: frozenset[str] | None = None
    """Names of the images that the dataset holds out for validation. If None, a tenth of every class is drawn."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Names of corrupt images that were left out (``on_bad_image: skip``), each with the reason."""
    test_store: ImageStore | None = None
    """The same images as they are seen at test time (``test_view``); None if they equal ``store``."""
    digest: str = ""
    """SHA-256 of the images, if it is known without reading ``store``."""
    folder: Path | None = None
    """The dataset's folder, which contains its published label splits; None if it has no folder."""
    pixels_digest: str = ""
    """SHA-256 of the decoded images in the cache; empty if they are decoded on each access."""


def check_loaded(spec: DatasetSpec, loaded: Any) -> None:
    """Raise an error if the function of a dataset did not return what its spec declares."""
    where = f"dataset {spec.name!r}"
    if not isinstance(loaded, Loaded):
        raise UserError(f"{where}: its function must return Loaded(images, items, classes), got {shown(loaded)}")
    shape, dtype = tuple(getattr(loaded.store, "shape", ())), str(getattr(loaded.store, "dtype", "torch.uint8"))
    if (
        isinstance(loaded.store, list | tuple)
        or (shape and (len(shape) != 4 or shape[1] != 3))
        or dtype != "torch.uint8"
    ):
        got = f"{dtype} {shape}" if shape else type(loaded.store).__name__
        raise UserError(f"{where}: its images must be a uint8 tensor (N, 3, H, W), got {got}")
    if len(loaded.store) != len(loaded.items):
        raise UserError(f"{where}: it has {len(loaded.store)} images, but {len(loaded.items)} items")
    if spec.num_classes and len(loaded.classes) != spec.num_classes:
        raise UserError(f"{where}: it has {len(loaded.classes)} classes, but its spec declares {spec.num_classes}")
    for item in loaded.items:
        if type(item.label) is not int or not 0 <= item.label < len(loaded.classes):
            raise UserError(
                f"{where}: {item.name}: the label must be a number from 0 to {len(loaded.classes) - 1}, got "
                f"{shown(item.label)}"
            )
    domains = {item.domain for item in loaded.items}
    if spec.domains and domains != set(spec.domains):
        raise UserError(
            f"{where}: it has images of {', '.join(sorted(domains))}, but its spec declares {', '.join(spec.domains)}"
        )
    if len({item.name for item in loaded.items}) != len(loaded.items):
        raise UserError(f"{where}: two images have the same name; splits and records need different ones")
