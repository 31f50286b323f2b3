"""What loading a dataset returns: its images and what is known about each. Light: no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from semilearn_ext.data.splits import Item

if TYPE_CHECKING:
    from torch import Tensor


class ImageStore(Protocol):
    """Decoded images by position: ``store[positions]`` is uint8 (N, 3, H, W). A tensor is one."""

    def __getitem__(self, positions: Tensor) -> Tensor: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Loaded:
    """The images of a dataset. Positions index ``store``, ``test_store`` and ``items`` alike."""

    store: ImageStore
    """Whole images, squashed to a square: what training views, style views and prototypes start from."""
    items: list[Item]
    classes: tuple[str, ...]
    held_out: frozenset[str] | None = None
    """Names of the images that the dataset itself holds out for validation; None: a tenth of every class is drawn."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Corrupt images that were left out, by name, with the reason: ``on_bad_image: skip``."""
    test_store: ImageStore | None = None
    """The same images as they are seen at test (``test_view``); None: as in ``store``."""
    digest: str = ""
    """SHA-256 of the images, where it is known without reading ``store``."""
    folder: Path | None = None
    """The dataset's own folder, where its published label splits are; None: it has none."""
