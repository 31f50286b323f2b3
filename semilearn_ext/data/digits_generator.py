"""A leave-one-domain-out digit benchmark that needs no download.

Ten classes, four domains, 32x32 RGB images, drawn in seconds from what is already installed: scikit-learn's 1,797
handwritten digits (8x8 ink counts) and the fonts that come with matplotlib. The looks imitate those of Digits-DG:

* ``pen``     light strokes on dark, as in MNIST;
* ``texture`` strokes blended by difference over colour textures, as in MNIST-M;
* ``street``  blurred, tilted, unevenly lit numbers with parts of their neighbours, as in SVHN;
* ``print``   printed digits in many fonts and colours over light clutter, as in SYN.

Every image has its own random generator, seeded from constants, so the bytes depend only on ``VERSION``, the looks
(:mod:`semilearn_ext.data.digits_looks`) and the versions of the libraries that draw. Once results have been published,
``VERSION`` must change with every look.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from semilearn_ext import files
from semilearn_ext.data.benchmarks.digits_mini import DIGITS_MINI
from semilearn_ext.data.digits_looks import (
    PEN,
    PRINT,
    SIZE,
    STREET,
    TEXTURE,
    draw_pen,
    draw_print,
    draw_street,
    draw_texture,
    to_bytes,
)
from semilearn_ext.errors import UserError

VERSION = 2
CLASSES: tuple[str, ...] = tuple(str(digit) for digit in range(10))
DOMAINS: tuple[str, ...] = DIGITS_MINI.domains
HANDWRITTEN: tuple[str, ...] = ("pen", "texture", "street")
PER_CLASS = 30
"""Images per class and domain: few enough that a run of 20 epochs takes about a minute on one core."""

# Every text font of matplotlib with upright, lining digits; not cmmi10 (old-style) and the symbol fonts.
FONTS: tuple[str, ...] = (
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
    "STIXGeneral",
    "STIXGeneralBol",
    "STIXGeneralItalic",
    "STIXGeneralBolIta",
    "cmb10",
    "cmr10",
    "cmss10",
    "cmti10",
    "cmtt10",
)


_PARTITION_STREAM = len(DOMAINS)
_DRAWING_STREAM = 0
_NEIGHBOUR_STREAM = 1


class DomainImages(NamedTuple):
    """One domain: ``images`` (N, 32, 32, 3) uint8, ``labels`` (N,) int64, and ``origins``, the name of each image."""

    images: np.ndarray
    labels: np.ndarray
    origins: tuple[str, ...]


def generate() -> dict[str, DomainImages]:
    """Draw all four domains."""
    originals, labels = handwritten_originals()
    parts = partition(labels)
    domains = {name: draw_handwritten(name, parts[name], originals, labels) for name in HANDWRITTEN}
    domains["print"] = draw_printed()
    return domains


def load(cache_dir: Path) -> dict[str, DomainImages]:
    """Like :func:`generate`, but cached in ``cache_dir`` if that folder is writable."""
    path = cache_file(cache_dir)
    cached = _read_cache(path)
    if cached is not None:
        return cached
    domains = generate()
    # The cache is optional: a read-only folder must not stop an experiment.
    with contextlib.suppress(OSError, UserError):
        _write_cache(path, domains)
    return domains


def cache_file(cache_dir: Path) -> Path:
    """The file in which :func:`load` caches the images. Its name contains everything that the bytes depend on."""
    libraries = ("numpy", "scipy", "scikit-learn", "matplotlib", "Pillow")
    versions = "_".join(f"{name}-{version(name)}" for name in libraries)
    looks = hashlib.sha256(repr((PEN, TEXTURE, STREET, PRINT)).encode()).hexdigest()[:8]
    return Path(cache_dir) / f"digits_mini_v{VERSION}_{looks}_{versions}.npz"


def handwritten_originals() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits as ink levels in 0..1, (1797, 8, 8), and their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return digits.images / 16.0, digits.target.astype(np.int64)


def partition(labels: np.ndarray) -> dict[str, np.ndarray]:
    """Assign at most ``PER_CLASS`` originals of every class to each handwritten domain; no original is used twice."""
    parts: dict[str, list[int]] = {name: [] for name in HANDWRITTEN}
    for label in range(len(CLASSES)):
        members = _generator(_PARTITION_STREAM, label).permutation(np.flatnonzero(labels == label))
        for number, name in enumerate(HANDWRITTEN):
            parts[name] += members[number :: len(HANDWRITTEN)][:PER_CLASS].tolist()
    return {name: np.array(sorted(part), dtype=np.int64) for name, part in parts.items()}


def neighbours(index: int, pool: np.ndarray) -> tuple[int, int]:
    """The originals to the left and right of a ``street`` number: two other members of ``pool``."""
    rng = _generator(DOMAINS.index("street"), index, _NEIGHBOUR_STREAM)
    left, right = rng.choice(pool[pool != index], size=2, replace=False)
    return int(left), int(right)


def draw_handwritten(domain: str, indices: np.ndarray, originals: np.ndarray, labels: np.ndarray) -> DomainImages:
    """Draw the originals at ``indices`` in the look of ``domain``."""
    images = np.empty((len(indices), SIZE, SIZE, 3), dtype=np.uint8)
    for row, index in enumerate(indices.tolist()):
        rng = _generator(DOMAINS.index(domain), index, _DRAWING_STREAM)
        if domain == "pen":
            picture = draw_pen(rng, originals[index], PEN)
        elif domain == "texture":
            picture = draw_texture(rng, originals[index], TEXTURE)
        else:
            left, right = neighbours(index, indices)
            picture = draw_street(rng, originals[index], originals[left], originals[right], STREET)
        images[row] = to_bytes(picture)
    origins = tuple(f"{domain}/{labels[index]}/digit_{index:04d}" for index in indices.tolist())
    return DomainImages(images, labels[indices], origins)


def draw_printed() -> DomainImages:
    """Draw the ``print`` domain, cycling through the fonts so that each is used equally often."""
    images, labels, origins = [], [], []
    uses: Counter[tuple[int, str]] = Counter()
    for number in range(PER_CLASS * len(CLASSES)):
        digit, font = number // PER_CLASS, FONTS[number % len(FONTS)]
        rng = _generator(DOMAINS.index("print"), number, _DRAWING_STREAM)
        images.append(to_bytes(draw_print(rng, font, str(digit), PRINT)))
        labels.append(digit)
        origins.append(f"print/{digit}/{font}_{uses[digit, font]:02d}")
        uses[digit, font] += 1
    return DomainImages(np.stack(images), np.array(labels, dtype=np.int64), tuple(origins))


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng([VERSION, *key])


def _read_cache(path: Path) -> dict[str, DomainImages] | None:
    """The domains stored at ``path``, or None if the file is missing or damaged."""
    if not path.is_file():
        return None
    try:
        with np.load(path, allow_pickle=False) as archive:
            domains = {
                name: DomainImages(
                    archive[f"{name}_images"],
                    archive[f"{name}_labels"],
                    tuple(archive[f"{name}_origins"].tolist()),
                )
                for name in DOMAINS
            }
            is_intact = str(archive["sha256"]) == _digest(_arrays(domains))
    # Depending on which byte is wrong, numpy, zipfile or zlib raises its own exception.
    except Exception:
        is_intact = False
    if is_intact and all(_is_well_formed(domain) for domain in domains.values()):
        return domains
    print(f"{path}: cache ignored because it has changed; drawing the images again", file=sys.stderr, flush=True)
    return None


def _is_well_formed(domain: DomainImages) -> bool:
    count = len(domain.origins)
    return (
        count > 0
        and domain.images.shape == (count, SIZE, SIZE, 3)
        and domain.images.dtype == np.uint8
        and domain.labels.shape == (count,)
        and domain.labels.dtype == np.int64
    )


def _write_cache(path: Path, domains: dict[str, DomainImages]) -> None:
    arrays = _arrays(domains)
    arrays["sha256"] = np.array(_digest(arrays))
    files.write_atomically(path, lambda file: np.savez(file, allow_pickle=False, **arrays), flush=False)


def _arrays(domains: dict[str, DomainImages]) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    for name, domain in domains.items():
        arrays[f"{name}_images"] = domain.images
        arrays[f"{name}_labels"] = domain.labels
        arrays[f"{name}_origins"] = np.array(domain.origins)
    return arrays


def _digest(arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
