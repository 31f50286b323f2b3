"""The data of one leave-one-domain-out experiment: images, labels, domains and the split."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semilearn_ext.data.loaded import ImageStore, Loaded, check_loaded
from semilearn_ext.data.samplers import iterations_per_epoch
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.data.split_files import FETCH_SPLITS, SplitFile, apply_split, read_split, split_file_name
from semilearn_ext.data.splits import Item, Split, as_json, check_labels, leave_one_out
from semilearn_ext.data.view_spec import ViewSpec
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from semilearn_ext.settings.content import dataset_name, index_folder, known_digest, split_path
from semilearn_ext.settings.domains import check_batch, dataset_of, targets_of
from semilearn_ext.settings.domains import sources as sources_of
from semilearn_ext.settings.image_cache import known_pixels
from semilearn_ext.settings.scale import scale_of


@dataclass(frozen=True)
class SSDGData:
    """The data of one run. Positions index ``store``, ``test_store``, ``items``, ``labels`` and ``domains`` alike."""

    settings: Settings
    store: ImageStore
    """Whole images, squashed to a square: the input of training views, style views and prototypes."""
    test_store: ImageStore
    """The same images as they are seen at test time."""
    items: list[Item]
    labels: torch.Tensor
    """(N,) class numbers."""
    domains: torch.Tensor
    """(N,) number of the source domain; -1 for images of the target domain and of unused domains."""
    classes: tuple[str, ...]
    digest: str
    """SHA-256 of the images; empty when the method uses only some of them and the others were not read."""
    left_out: dict[str, str]
    """Names of corrupt images that were left out, each with the reason."""
    sources: tuple[str, ...]
    split: Split
    split_file: SplitFile | None
    """The file that the split was read from, or None if it was drawn."""
    short_classes: dict[str, int]
    """``"domain/class"`` to the number of labels, for every class with fewer than ``labels_per_class``."""
    view: ViewSpec
    steps_per_epoch: int
    scale: str
    pixels_digest: str = ""
    """SHA-256 of the decoded images in the cache; empty without a cache."""

    @property
    def epochs(self) -> int:
        """Number of epochs; ``num_train_iter`` may end the last one early."""
        return -(-self.total_steps // self.steps_per_epoch)

    @property
    def total_steps(self) -> int:
        return self.settings.num_train_iter or self.settings.epoch * self.steps_per_epoch

    @property
    def eval_every(self) -> int:
        return self.settings.num_eval_iter or self.steps_per_epoch

    def by_domain(self, positions: list[int]) -> list[np.ndarray]:
        """``positions`` grouped by source domain."""
        array = np.asarray(positions)
        numbers = self.domains.numpy()[array]
        return [array[numbers == number] for number in range(len(self.sources))]

    def digests(self) -> dict[str, str]:
        """What identifies the data, by its names in the record; empty if unknown."""
        return {
            "images_sha256": self.digest,
            "pixels_sha256": self.pixels_digest,
            "split_sha256": self.split_file.sha256 if self.split_file else "",
            "decoder": "" if isinstance(self.store, torch.Tensor) else f"Pillow {version('pillow')}",
        }

    def split_json(self) -> dict[str, Any]:
        return {
            "dataset": self.settings.dataset,
            "dataset_name": dataset_name(self.settings),
            "images_sha256": self.digest or None,
            "pixels_sha256": self.pixels_digest or None,
            "target_domain": self.settings.target_domain,
            "source_domains": list(self.sources),
            "labels_per_class": self.settings.labels_per_class,
            "seed": self.settings.seed,
            "splits": self.settings.splits,
            "split_file": self.split_file.path.name if self.split_file else None,
            "split_sha256": self.split_file.sha256 if self.split_file else None,
            "classes": list(self.classes),
            "short_classes": self.short_classes,
            **as_json(self.split, self.items),
            "left_out": self.left_out,
        }

    def notes(self) -> list[str]:
        """What a reader of the results should know about the data, one line each."""
        lines = []
        if self.split_file:
            lines.append(f"label split: {self.split_file.path}")
        if self.short_classes:
            lines.append(
                f"classes with fewer than {self.settings.labels_per_class} training images in a source domain, all of "
                f"them labelled: {len(self.short_classes)}"
            )
        if self.left_out:
            lines.append(f"corrupt images left out: {len(self.left_out)}")
        return lines


def load_data(settings: Settings, world_size: int = 1) -> SSDGData:
    """Load the images, split them, and check that ``world_size`` processes can share a batch."""
    if len(targets_of(settings)) > 1:
        raise UserError(f"{settings.where('target_domain')}: expected one domain, got {settings.target_domain!r}")
    sources = sources_of(settings, settings.target_domain)
    check_batch(settings, len(sources), world_size)
    loaded = load_images(settings)
    items = loaded.items
    split, file = _split(settings, loaded, sources)
    short_classes = check_labels(
        split,
        items,
        sources=sources,
        classes=loaded.classes,
        labels_per_class=settings.labels_per_class,
        few_labels=dataset_of(settings).few_labels if settings.few_labels == "auto" else settings.few_labels,
        where=str(file.path) if file else settings.where("labels_per_class"),
    )
    if not split.target:
        raise UserError(f"{settings.where('target_domain')}: {settings.target_domain!r} has no images")
    if not split.source_val:
        where = str(file.path) if file else settings.where("data_dir")
        raise UserError(f"{where}: no images of the source domains remain for validation")
    number = {name: k for k, name in enumerate(sources)}
    domains = torch.tensor([number.get(item.domain, -1) for item in items])
    per_domain = settings.batch_size * settings.uratio // len(sources)
    counts = torch.bincount(domains[split.unlabelled], minlength=len(sources))
    steps = iterations_per_epoch(counts.tolist(), per_domain)
    if steps == 0:
        raise UserError(
            f"{settings.where('batch_size')}: {per_domain} unlabelled images per domain and step, but domain "
            f"{sources[int(counts.argmin())]!r} has only {int(counts.min())}; lower batch_size or uratio"
        )
    return SSDGData(
        settings=settings,
        store=loaded.store,
        test_store=loaded.store if loaded.test_store is None else loaded.test_store,
        items=items,
        labels=torch.tensor([item.label for item in items]),
        domains=domains,
        classes=loaded.classes,
        digest=loaded.digest or _digest(loaded),
        left_out=loaded.left_out,
        sources=tuple(sources),
        split=split,
        split_file=file,
        short_classes=short_classes,
        view=view_spec(settings),
        steps_per_epoch=steps,
        scale=scale_of(settings),
        pixels_digest=loaded.pixels_digest,
    )


def load_images(settings: Settings) -> Loaded:
    """Load the images of the dataset named in ``settings``."""
    spec = dataset_of(settings)
    loaded: Loaded = spec.load()(spec, settings)
    check_loaded(spec, loaded)
    return loaded


def known_digests(settings: Settings) -> dict[str, str]:
    """Digests of a benchmark's images, and of the decoded ones, as far as they are known without opening an image."""
    spec, index = dataset_of(settings), index_folder(settings.cache_dir)
    if not isinstance(spec, ImageTreeSpec):
        return {}
    try:
        tree = spec.tree(Path(settings.data_dir).expanduser())
        images = known_digest(tree.root, [item.name for item in tree.items], index) or ""
    except UserError:  # a finished run does not need its images
        return {}
    pixels = known_pixels(index, images, settings.img_size) if images and settings.cache != "none" else ""
    return {"images_sha256": images, "pixels_sha256": pixels}


def _digest(loaded: Loaded) -> str:
    """SHA-256 of the names, labels and pixels of images that are in memory."""
    if not isinstance(loaded.store, torch.Tensor):
        return ""
    digest = hashlib.sha256(
        "".join(f"{item.name}\0{item.label}\n" for item in loaded.items).encode("utf-8", "surrogateescape")
    )
    digest.update(loaded.store.contiguous().numpy().data)
    return digest.hexdigest()


def _split(settings: Settings, loaded: Loaded, sources: list[str]) -> tuple[Split, SplitFile | None]:
    """The split of the run and the file that it was read from, if any."""
    drawn = leave_one_out(
        loaded.items,
        dataset=settings.dataset,
        target=settings.target_domain,
        sources=sources,
        labels_per_class=settings.labels_per_class,
        seed=settings.seed,
        classes=loaded.classes,
        held_out=loaded.held_out,
    )
    if settings.splits == "published":
        if settings.split_file:
            raise UserError(f"{settings.where('split_file')}: cannot be combined with splits: published; drop one")
        labels = settings.labels_per_class * len(loaded.classes) * len(sources)
        path = _published_file(settings, loaded.folder, labels)
    elif settings.split_file:
        path = split_path(settings)
    else:
        return drawn, None
    file = read_split(path)
    return apply_split(file, loaded.items, drawn, settings.target_domain, sources), file


def _published_file(settings: Settings, folder: Path | None, labels: int) -> Path:
    """The file ``<dataset>/splits_ssdg/<target>_nlab<N>_seed<S>.json``. The error says where to get a missing one."""
    where, spec = settings.where("splits"), dataset_of(settings)
    if folder is None or not spec.splits_folder:
        raise UserError(f"{where}: no label splits were published for {spec.name}; use --splits ours")
    path = folder / spec.splits_folder / split_file_name(settings.target_domain, labels, settings.seed)
    if not path.is_file():
        raise UserError(f"{where}: {path} is missing; {FETCH_SPLITS} and unpack it into {path.parent}")
    return path


def view_spec(settings: Settings) -> ViewSpec:
    spec = dataset_of(settings)
    return ViewSpec(settings.img_size, settings.flip, settings.cutout, spec.mean, spec.std, settings.cutout_color)
