"""Load a tree of image files, from the cache of decoded images or by decoding them on access."""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.data.cache import DecodedImages, find_bad, is_cached, open_cache
from semilearn_ext.data.decode import center_crop, squash
from semilearn_ext.data.layouts import Tree, without
from semilearn_ext.data.loaded import ImageStore, Loaded
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.errors import UserError
from semilearn_ext.registry import ALGORITHMS
from semilearn_ext.settings import Settings
from semilearn_ext.settings.content import images_digest, index_folder, known_digest


def load(spec: ImageTreeSpec, settings: Settings) -> Loaded:
    """Load the images that ``spec`` finds in ``data_dir``. A corrupt image is an error or left out (``on_bad_image``).

    For a method that uses no unlabelled images, no cache is built, but an existing one is used.
    """
    tree = spec.tree(Path(settings.data_dir).expanduser())
    names = [item.name for item in tree.items]
    folder = index_folder(settings.cache_dir)
    size, center = settings.img_size, settings.test_view == "center"
    labelled_only = ALGORITHMS.get(settings.base, settings.where("algorithm")).labelled_only
    store: ImageStore
    test_store: ImageStore
    pixels_digest = ""
    if settings.cache != "none" and (not labelled_only or is_cached(tree.root, names, size, folder)):
        cache = open_cache(tree.root, names, size, folder, settings.progress)
        bad, digest, pixels_digest = cache.bad, cache.digest, cache.pixels_digest
        positions = [position for position, name in enumerate(names) if name not in bad]
        store = cache.squashed.select(positions)
        test_store = cache.center.select(positions) if center else store
    else:
        bad = _bad_images(tree, settings.progress) if settings.on_bad_image == "skip" else {}
        known = known_digest if labelled_only else images_digest
        digest = known(tree.root, names, folder) or ""
        paths = [tree.root / name for name in names if name not in bad]
        store = DecodedImages(paths, size, squash)
        test_store = DecodedImages(paths, size, center_crop) if center else store
    if bad and settings.on_bad_image == "error":
        name, reason = next(iter(bad.items()))
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise UserError(
            f"{tree.root / name}{more}: corrupt or truncated image ({reason}); replace it, or skip it with "
            f"--on_bad_image skip"
        )
    items = without(tree, bad).items
    return Loaded(store, items, tree.classes, tree.held_out, bad, test_store, digest, tree.folder, pixels_digest)


def _bad_images(tree: Tree, progress: bool) -> dict[str, str]:
    reasons = find_bad([tree.path(item) for item in tree.items], progress)
    return {item.name: reasons[tree.path(item)] for item in tree.items if tree.path(item) in reasons}
