"""Small trees of random images in the layouts of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from semilearn_ext.data.benchmarks.pacs import PACS

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def picture(path: Path, seed: int = 0, mode: str = "RGB", side: int = 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def write_images(root: Path, folders: list[str], count: int, ending: str = "jpg") -> None:
    """Write ``count`` different images to each folder."""
    for number, folder in enumerate(folders):
        for k in range(count):
            picture(root / folder / f"pic_{k:03d}.{ending}", seed=1000 * number + k)


def pacs(root: Path, count: int = 6, splits: bool = True) -> None:
    domains = PACS.domains
    images = root / "pacs" / "images" if splits else root / "pacs"
    write_images(images, [f"{d}/{c}" for d in domains for c in PACS_CLASSES], count)
    if splits:
        (root / "pacs" / "splits").mkdir()
        for domain in domains:
            lines = [f"{domain}/{c}/pic_{k:03d}.jpg {n + 1}" for n, c in enumerate(PACS_CLASSES) for k in range(count)]
            for part, chosen in (
                ("test", lines),
                ("crossval", lines[::count]),
                ("train", sorted(set(lines) - set(lines[::count]))),
            ):
                (root / "pacs" / "splits" / f"{domain}_{part}_kfold.txt").write_text("\n".join(chosen) + "\n")
