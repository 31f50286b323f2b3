"""digits_mini: image counts, separation of domains, determinism and cache."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semilearn_ext.data import digits_generator, digits_looks
from semilearn_ext.data.digits_generator import DOMAINS, FONTS, HANDWRITTEN, DomainImages

ROOT = Path(__file__).resolve().parents[2]

Domains = dict[str, DomainImages]


@pytest.fixture(scope="module")
def domains() -> Domains:
    return digits_generator.generate()


def digest(domains: Domains) -> str:
    sha = hashlib.sha256()
    for name in DOMAINS:
        images, labels, origins = domains[name]
        sha.update(images.tobytes() + labels.tobytes() + "\n".join(origins).encode())
    return sha.hexdigest()


def originals_of(domain: DomainImages) -> list[int]:
    return [int(origin.rsplit("_", 1)[1]) for origin in domain.origins]


def test_domains_come_in_the_declared_order(domains: Domains) -> None:
    assert tuple(domains) == DOMAINS


@pytest.mark.parametrize("name", DOMAINS)
def test_arrays_have_the_documented_form(domains: Domains, name: str) -> None:
    images, labels, origins = domains[name]
    assert images.shape == (len(labels), 32, 32, 3)
    assert images.dtype == np.uint8
    assert labels.dtype == np.int64
    assert len(origins) == len(set(origins)) == len(labels)
    assert all(origin.startswith(f"{name}/{label}/") for origin, label in zip(origins, labels.tolist(), strict=True))


def test_counts_by_domain_and_class(domains: Domains) -> None:
    for domain in domains.values():
        assert np.bincount(domain.labels).tolist() == [digits_generator.PER_CLASS] * 10


def test_labels_are_those_of_the_originals(domains: Domains) -> None:
    _, labels = digits_generator.handwritten_originals()
    for name in HANDWRITTEN:
        np.testing.assert_array_equal(domains[name].labels, labels[originals_of(domains[name])])


def test_no_original_is_used_twice(domains: Domains) -> None:
    used = [index for name in HANDWRITTEN for index in originals_of(domains[name])]
    assert len(used) == len(set(used)) == 3 * 10 * digits_generator.PER_CLASS


def test_partition_is_disjoint_and_stratified() -> None:
    labels = np.repeat(np.arange(10), 7)
    parts = digits_generator.partition(labels)
    assert sorted(np.concatenate(list(parts.values())).tolist()) == list(range(70))
    for indices in parts.values():
        assert set(np.bincount(labels[indices], minlength=10).tolist()) <= {2, 3}


def test_neighbours_are_two_others_of_the_pool() -> None:
    pool = np.array([3, 8, 21, 40])
    for index in pool.tolist():
        assert len({index, *digits_generator.neighbours(index, pool)} & set(pool.tolist())) == 3


def test_street_uses_no_original_of_another_domain(domains: Domains) -> None:
    originals, labels = digits_generator.handwritten_originals()
    indices = digits_generator.partition(labels)["street"]
    blanked = np.full_like(originals, np.nan)
    blanked[indices] = originals[indices]
    redrawn = digits_generator.draw_handwritten("street", indices, blanked, labels)
    np.testing.assert_array_equal(redrawn.images, domains["street"].images)


def test_street_shows_its_neighbours() -> None:
    originals, labels = digits_generator.handwritten_originals()
    indices = digits_generator.partition(labels)["street"][:20]
    alone = originals.copy()
    first = int(indices[0])
    alone[list(digits_generator.neighbours(first, indices))] = 0.0
    pictures = [
        digits_generator.draw_handwritten("street", indices, source, labels).images[0] for source in (originals, alone)
    ]
    assert (pictures[0] != pictures[1]).any()


@pytest.mark.parametrize("name", ["pen", "texture"])
def test_an_image_does_not_depend_on_the_others(domains: Domains, name: str) -> None:
    originals, labels = digits_generator.handwritten_originals()
    chosen = digits_generator.partition(labels)[name][5:8]
    drawn = digits_generator.draw_handwritten(name, chosen, originals, labels)
    np.testing.assert_array_equal(drawn.images, domains[name].images[5:8])


def test_generate_twice_gives_the_same_bytes(domains: Domains) -> None:
    assert digest(digits_generator.generate()) == digest(domains)


def test_another_process_gives_the_same_bytes(domains: Domains) -> None:
    program = (
        "import runpy, sys\n"
        "from semilearn_ext.data import digits_generator\n"
        "print(runpy.run_path(sys.argv[1])['digest'](digits_generator.generate()))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program, __file__],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "4711", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == digest(domains)


def test_fonts_are_used_evenly(domains: Domains) -> None:
    names = [origin.split("/") for origin in domains["print"].origins]
    uses = Counter(file.rsplit("_", 1)[0] for _, _, file in names)
    assert set(uses) == set(FONTS)
    assert max(uses.values()) - min(uses.values()) <= 1
    by_class = Counter((digit, file.rsplit("_", 1)[0]) for _, digit, file in names)
    assert len(by_class) == 10 * len(FONTS)
    assert set(by_class.values()) == {1, 2}


def normalised_glyphs() -> np.ndarray:
    """(font, digit, pixel): every glyph resized to the same box, centred and scaled to unit length."""
    boxes = np.array(
        [
            [
                np.asarray(digits_looks.glyph(font, digit).resize((24, 32), Image.Resampling.BOX))
                for digit in "0123456789"
            ]
            for font in FONTS
        ],
        dtype=np.float64,
    ).reshape(len(FONTS), 10, -1)
    centred = boxes - boxes.mean(axis=2, keepdims=True)
    return centred / np.linalg.norm(centred, axis=2, keepdims=True)


@pytest.mark.parametrize("font", FONTS)
def test_font_renders_ten_distinct_digits(font: str) -> None:
    glyphs = normalised_glyphs()
    row = FONTS.index(font)
    likeness = glyphs[row] @ glyphs[row].T
    assert likeness[~np.eye(10, dtype=bool)].max() < 0.95
    # Symbols are distinct too; only digits resemble the same digits of the other fonts.
    others = np.delete(glyphs, row, axis=0).reshape(-1, glyphs.shape[2])
    assert ((glyphs[row] @ others.T).argmax(axis=1) % 10).tolist() == list(range(10))


@pytest.mark.parametrize("name", DOMAINS)
def test_no_image_is_blank(domains: Domains, name: str) -> None:
    spread = domains[name].images.reshape(len(domains[name].labels), -1).std(axis=1)
    assert spread.min() > 8.0


def test_images_of_a_domain_differ(domains: Domains) -> None:
    for domain in domains.values():
        assert len({image.tobytes() for image in domain.images}) == len(domain.images)


def colourfulness(images: np.ndarray) -> float:
    return float((images.max(axis=3).astype(float) - images.min(axis=3)).mean())


def roughness(images: np.ndarray) -> float:
    """The median difference of neighbouring pixels: zero for uniform backgrounds, larger for noise or texture."""
    return float(np.median(np.abs(np.diff(images.astype(float), axis=2))))


def test_domains_differ_in_their_statistics(domains: Domains) -> None:
    colours = {name: colourfulness(domain.images) for name, domain in domains.items()}
    steps = {name: roughness(domain.images) for name, domain in domains.items()}
    brightness = {name: domain.images.mean() for name, domain in domains.items()}
    assert colours["pen"] == 0.0
    assert min(colours["texture"], colours["print"]) > 1.3 * colours["street"] > 13.0
    assert steps["street"] > steps["texture"] > steps["print"] > steps["pen"] == 0.0
    assert brightness["pen"] < 0.6 * min(brightness[name] for name in DOMAINS if name != "pen")


def test_pen_is_light_on_dark(domains: Domains) -> None:
    images = domains["pen"].images
    assert np.median(images) < 40
    assert images.reshape(len(images), -1).max(axis=1).min() > 170


def test_load_generates_once(domains: Domains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = digits_generator.load(tmp_path / "new" / "folder")
    (file,) = (tmp_path / "new" / "folder").iterdir()
    assert file == digits_generator.cache_file(tmp_path / "new" / "folder")
    written = file.stat().st_mtime_ns
    monkeypatch.setattr(digits_generator, "generate", lambda: pytest.fail("the cache was not used"))
    second = digits_generator.load(tmp_path / "new" / "folder")
    assert file.stat().st_mtime_ns == written
    assert digest(first) == digest(second) == digest(domains)


def test_the_name_of_the_cache_contains_versions_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = digits_generator.cache_file(tmp_path).name
    for library in ("numpy", "scikit-learn", "matplotlib", "Pillow"):
        assert f"{library}-{digits_generator.version(library)}" in name
    monkeypatch.setattr(digits_generator, "PEN", digits_looks.PenLook(ink=(0.5, 0.6)))
    other_look = digits_generator.cache_file(tmp_path).name
    monkeypatch.setattr(digits_generator, "VERSION", digits_generator.VERSION + 1)
    assert len({name, other_look, digits_generator.cache_file(tmp_path).name}) == 3


def truncate(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flip_a_byte(data: bytes) -> bytes:
    middle = len(data) // 3
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


def empty(data: bytes) -> bytes:
    return data[:0]


@pytest.mark.parametrize("damage", [truncate, flip_a_byte, empty])
def test_a_damaged_cache_is_replaced(domains: Domains, tmp_path: Path, monkeypatch, damage) -> None:
    monkeypatch.setattr(digits_generator, "generate", lambda: domains)
    digits_generator.load(tmp_path)
    file = digits_generator.cache_file(tmp_path)
    intact = file.read_bytes()
    file.write_bytes(damage(intact))
    assert digest(digits_generator.load(tmp_path)) == digest(domains)
    monkeypatch.setattr(digits_generator, "generate", lambda: pytest.fail("the cache was not repaired"))
    assert digest(digits_generator.load(tmp_path)) == digest(domains)
    assert list(tmp_path.iterdir()) == [file]


def test_an_archive_with_other_pixels_is_not_used(
    domains: Domains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digits_generator, "generate", lambda: domains)
    digits_generator.load(tmp_path)
    file = digits_generator.cache_file(tmp_path)
    for name in ("pen_images", "street_labels"):
        with np.load(file) as archive:
            arrays = dict(archive)
        arrays[name] = arrays[name][::-1]
        np.savez(file, **arrays)
        assert digest(digits_generator.load(tmp_path)) == digest(domains)
        assert "cache ignored because it has changed" in capsys.readouterr().err
    assert digest(digits_generator.load(tmp_path)) == digest(domains)
    assert capsys.readouterr().err == ""


def test_an_unwritable_cache_folder_is_ignored(domains: Domains, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(digits_generator, "generate", lambda: domains)
    obstacle = tmp_path / "file"
    obstacle.write_text("not a folder")
    assert digest(digits_generator.load(obstacle / "cache")) == digest(domains)
    assert obstacle.read_text() == "not a folder"


def test_a_failed_write_leaves_nothing_behind(domains: Domains, tmp_path: Path, monkeypatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(digits_generator, "generate", lambda: domains)
    monkeypatch.setattr(digits_generator.np, "savez", full_disk)
    assert digest(digits_generator.load(tmp_path)) == digest(domains)
    assert list(tmp_path.iterdir()) == []


def load_digest(folder: Path) -> str:
    return digest(digits_generator.load(folder))


def test_two_processes_can_build_the_digits_at_the_same_time(
    domains: Domains, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digits_generator, "generate", lambda: domains)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        digests = pool.map(load_digest, [tmp_path] * 4, chunksize=1)
    assert set(digests) == {digest(domains)}
    assert [file.name for file in tmp_path.iterdir()] == [digits_generator.cache_file(tmp_path).name]
    assert load_digest(tmp_path) == digest(domains)
