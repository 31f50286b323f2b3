"""The result of loading a dataset: its images, classes and domains. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from semilearn_ext.data.splits import Item

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
