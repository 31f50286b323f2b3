"""The benchmarks: what the paper trained on each, and where its images are.

A new benchmark is one small class here, a line in ``BENCHMARKS`` and a line in
:data:`semilearn_ext.settings.domains.DOMAINS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from semilearn_ext.data import digits_mini, trees
from semilearn_ext.data.cache import DecodedImages, find_bad, is_cached, open_cache
from semilearn_ext.data.splits import Item
from semilearn_ext.data.views import IMAGENET_MEAN, IMAGENET_STD
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from semilearn_ext.settings.domains import DOMAINS, domains_of
from semilearn_ext.settings.methods import LABELLED_ONLY, parse_name


class ImageStore(Protocol):
    """Images by position, decoded: ``store[positions]`` is uint8 (N, 3, H, W)."""

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Loaded:
    """A benchmark's images and what is known about each."""

    store: ImageStore
    items: list[Item]
    classes: tuple[str, ...]
    held_out: frozenset[str] | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    """Images that are not whole, by name, with the reason: ``on_bad_image: skip``."""


class Benchmark(Protocol):
    """What the rest of the package needs to know about a benchmark."""

    name: str
    paper: Mapping[str, Any] | None
    """The settings of the paper's runs where it used this benchmark, else None."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def load(self, settings: Settings) -> Loaded: ...


class DigitsMini:
    """The embedded benchmark: see :mod:`semilearn_ext.data.digits_mini`."""

    name = "digits_mini"
    paper: Mapping[str, Any] | None = None
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def load(self, settings: Settings) -> Loaded:
        made = digits_mini.load(Path(settings.cache_dir).expanduser())
        items = [
            Item(name, int(label), domain, name)
            for domain in digits_mini.DOMAINS
            for name, label in zip(made[domain].origins, made[domain].labels, strict=True)
        ]
        images = torch.cat([torch.from_numpy(made[domain].images) for domain in digits_mini.DOMAINS])
        return Loaded(images.permute(0, 3, 1, 2).contiguous(), items, digits_mini.CLASSES)


_PAPER = {"img_size": 224, "epoch": 20, "batch_size": 48, "uratio": 1, "net": "resnet18", "pretrained": True}


class OnDisk:
    """A benchmark of image files. Subclasses say what it is called and which layouts it comes in."""

    name: str
    names: Sequence[str]
    """The domains."""
    class_count: int
    folders: Sequence[str]
    """What its folder may be called inside ``data_dir``."""
    counts: Mapping[str, int]
    """Published number of images by domain."""
    class_counts: Mapping[str, Sequence[int]] = {}
    """The same by class, in the order of their names, where it is published."""
    layouts: Sequence[str]
    """The accepted trees, for the error message."""
    fetch: str
    """How to get the data, in a line."""
    paper: Mapping[str, Any] | None = _PAPER
    mean = IMAGENET_MEAN
    std = IMAGENET_STD

    def load(self, settings: Settings) -> Loaded:
        return load_images(self.tree(Path(settings.data_dir).expanduser()), settings)

    def tree(self, data_dir: Path) -> trees.Tree:
        """The images below ``data_dir``, in whichever published layout they are."""
        for folder in [*(data_dir / name for name in self.folders), data_dir]:
            found = self.recognise(folder) if folder.is_dir() else None
            if found is not None:
                self.check_classes(found)
                return found
        raise UserError(self._not_found(data_dir))

    def recognise(self, root: Path) -> trees.Tree | None:
        """The tree at ``root``, or None when it is none of the published layouts."""
        raise NotImplementedError

    def check_classes(self, tree: trees.Tree) -> None:
        if len(tree.classes) != self.class_count:
            raise UserError(
                f"{tree.root}: {self.name} has {self.class_count} classes, found {len(tree.classes)}: "
                f"{', '.join(tree.classes[:8])}…; {self.fetch}"
            )

    def _not_found(self, data_dir: Path) -> str:
        there = trees.subfolders(data_dir) if data_dir.is_dir() else []
        seen = f"it holds {', '.join(there[:6]) or 'no folders'}" if data_dir.is_dir() else "there is no such folder"
        return f"data_dir: no {self.name} in {data_dir} ({seen}); expected {' or '.join(self.layouts)}; {self.fetch}"


class Pacs(OnDisk):
    name = "pacs"
    names = DOMAINS["pacs"]
    class_count = 7
    folders = ("pacs", "PACS", "pacs_data")
    counts: Mapping[str, int] = {"art_painting": 2048, "cartoon": 2344, "photo": 1670, "sketch": 3929}
    class_counts: Mapping[str, Sequence[int]] = {
        "art_painting": (379, 255, 285, 184, 201, 295, 449),
        "cartoon": (389, 457, 346, 135, 324, 288, 405),
        "photo": (189, 202, 182, 186, 199, 280, 432),
        "sketch": (772, 740, 753, 608, 816, 80, 160),
    }
    layouts = ("pacs/images/<domain>/<class>/* with pacs/splits/*_kfold.txt", "pacs/<domain>/<class>/*")
    fetch = "get it with: python -m semilearn_ext data prepare pacs --root DIR"

    def recognise(self, root: Path) -> trees.Tree | None:
        for images in (root / "images", root):
            folders = trees.find_domains(images, self.names)
            if folders is not None:
                tree = trees.list_tree(images, folders)
                held_out = self._held_out(root / "splits", tree)
                return trees.Tree(images, tree.domains, tree.classes, tree.items, held_out)
        return None

    def _held_out(self, splits: Path, tree: trees.Tree) -> frozenset[str] | None:
        """The official crossval lists. They must name the tree's own images, or they are of another copy."""
        if not splits.is_dir():
            return None
        there = {item.name for item in tree.items}
        named = [name for d in self.names for name, _ in trees.read_list(splits / f"{d}_crossval_kfold.txt")]
        missing = [name for name in named if name not in there]
        if missing:
            raise UserError(f"{splits}: {len(missing)} images are not in the tree, the first is {missing[0]}")
        return frozenset(named)


class OfficeHome(OnDisk):
    name = "office_home"
    names = DOMAINS["office_home"]
    class_count = 65
    folders = ("office_home_dg", "office_home", "OfficeHomeDataset", "OfficeHomeDataset_10072016")
    counts: Mapping[str, int] = {"art": 2427, "clipart": 4365, "product": 4439, "real_world": 4357}
    layouts = (
        "office_home_dg/<domain>/{train,val}/<class>/*",
        "OfficeHomeDataset/{Art,Clipart,Product,Real World}/<class>/*",
    )
    fetch = "get it with: python -m semilearn_ext data prepare office_home --root DIR"

    def recognise(self, root: Path) -> trees.Tree | None:
        return _with_optional_parts(root, self.names)


class DigitsDG(OnDisk):
    name = "digits_dg"
    names = DOMAINS["digits_dg"]
    class_count = 10
    folders = ("digits_dg", "DigitsDG", "digits-dg")
    counts: Mapping[str, int] = dict.fromkeys(names, 6000)
    class_counts: Mapping[str, Sequence[int]] = dict.fromkeys(names, (600,) * 10)
    layouts = ("digits_dg/<domain>/{train,val}/<digit>/*",)
    fetch = "what to fetch by hand: python -m semilearn_ext data prepare digits_dg --root DIR"

    def recognise(self, root: Path) -> trees.Tree | None:
        return _with_optional_parts(root, self.names)


class MiniDomainNet(OnDisk):
    """miniDomainNet: 126 classes of DomainNet. The paper's appendix says 345; its code and label counts say 126."""

    name = "mini_domainnet"
    names = DOMAINS["mini_domainnet"]
    class_count = 126
    folders = ("domainnet", "DomainNet", "mini_domainnet")
    counts: Mapping[str, int] = {"clipart": 18703, "painting": 31202, "real": 65609, "sketch": 24492}
    layouts = ("domainnet/<domain>/<class>/* with domainnet/splits_mini/<domain>_{train,test}.txt",)
    fetch = "what to fetch by hand: python -m semilearn_ext data prepare mini_domainnet --root DIR"
    paper: Mapping[str, Any] | None = {**_PAPER, "epoch": 10}

    def recognise(self, root: Path) -> trees.Tree | None:
        splits = root / "splits_mini"
        if not splits.is_dir() or trees.find_domains(root, self.names) is None:
            return None
        parts = {d: {"train": splits / f"{d}_train.txt", "val": splits / f"{d}_test.txt"} for d in self.names}
        return trees.listed_tree(root, self.names, parts)


def _with_optional_parts(root: Path, domains: Sequence[str]) -> trees.Tree | None:
    """``root/<domain>/<class>/*``, or the same with a train and a val folder in every domain."""
    folders = trees.find_domains(root, domains)
    if folders is None:
        return None
    has_parts = all({"train", "val"} <= set(trees.subfolders(root / folder)) for folder in folders.values())
    return trees.list_tree(root, folders, ("train", "val") if has_parts else ())


class Folder:
    """Anybody's own data: ``data_dir/<domain>/<class>/*``."""

    name = "folder"
    paper: Mapping[str, Any] | None = None
    mean = IMAGENET_MEAN
    std = IMAGENET_STD

    def load(self, settings: Settings) -> Loaded:
        return load_images(self.tree(Path(settings.data_dir).expanduser()), settings)

    def tree(self, data_dir: Path) -> trees.Tree:
        return trees.list_tree(data_dir, {name: name for name in trees.subfolders(data_dir)})


def load_images(tree: trees.Tree, settings: Settings) -> Loaded:
    """Pixels for a tree of files: cached or decoded as they are asked for. Broken images end it, or are left out.

    A method that uses no unlabelled image decodes none to build a cache, and takes one that is there.
    """
    names = [item.name for item in tree.items]
    folder = Path(settings.cache_dir).expanduser() / "images"
    labelled_only = parse_name(settings.algorithm, settings.where("algorithm")).base in LABELLED_ONLY
    decodes = settings.cache == "none" or (labelled_only and not is_cached(tree.root, names, settings.img_size, folder))
    store: ImageStore
    if decodes:
        bad: dict[str, str] = {}
        if settings.on_bad_image == "skip":
            found = find_bad([tree.root / name for name in names], settings.progress)
            bad = {name: found[tree.root / name] for name in names if tree.root / name in found}
    else:
        cached, bad = open_cache(tree.root, names, settings.img_size, folder, settings.progress)
    if bad and settings.on_bad_image == "error":
        name, reason = next(iter(bad.items()))
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise UserError(
            f"{tree.root / name}{more}: not a whole image ({reason}); replace it, or leave it out with "
            f"--on_bad_image skip"
        )
    kept = trees.without(tree, bad)
    if decodes:
        store = DecodedImages([tree.root / item.name for item in kept.items], settings.img_size)
    else:
        cached.rows = cached.rows[[position for position, name in enumerate(names) if name not in bad]]
        store = cached
    return Loaded(store, kept.items, kept.classes, kept.held_out, bad)


BENCHMARKS: dict[str, Callable[[], Benchmark]] = {
    "digits_mini": DigitsMini,
    "pacs": Pacs,
    "office_home": OfficeHome,
    "digits_dg": DigitsDG,
    "mini_domainnet": MiniDomainNet,
    "folder": Folder,
}


def get_benchmark(settings: Settings) -> Benchmark:
    """The benchmark that ``settings`` name; an unknown one is refused."""
    domains_of(settings)
    return BENCHMARKS[settings.dataset]()


def scale_of(settings: Settings, benchmark: Benchmark) -> str:
    """``paper`` when the run is of the size the paper's were, else ``reduced``."""
    flat = settings.flat()
    at_scale = benchmark.paper is not None and all(flat[name] == value for name, value in benchmark.paper.items())
    return "paper" if at_scale and not settings.num_train_iter else "reduced"
