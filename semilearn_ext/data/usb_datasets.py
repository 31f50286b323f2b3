"""Leave-one-domain-out data as datasets for USB's ``get_data_loader`` and ``Trainer.fit``.

An item is a dict in USB's format (``x_lb``, ``y_lb``, ``x_ulb_w``, ``x_ulb_s`` ...) with the number of the source
domain as ``d_lb`` or ``d_ulb``. Views are those of this package, or transforms of PIL images passed by the user.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from semilearn_ext.data import views
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.view_spec import ViewSpec
from semilearn_ext.data.views import VIEW_KINDS

Transform = Callable[[Image.Image], Tensor]
ROTATED = "x_ulb_s_0_rot"


@dataclass(frozen=True)
class Views:
    """How pixels become a view: by the user's transform or, if that is None, by this package."""

    spec: ViewSpec
    weak: Transform | None = None
    strong: Transform | None = None
    plain: Transform | None = None

    def make(self, kind: str, pixels: Tensor) -> Tensor:
        """The ``weak``, ``strong`` or ``plain`` view of one uint8 image (3, H, W)."""
        transform: Transform | None = getattr(self, kind)
        if transform is not None:
            return transform(Image.fromarray(pixels.permute(1, 2, 0).numpy()))
        # USB seeds the global generator, and every loader process has its own.
        rng = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        return views.make(kind, pixels[None], self.spec, rng)[0]


class DomainDataset(Dataset[dict[str, Any]]):
    """Images of one part of a leave-one-domain-out split.

    Args:
        data: the whole experiment.
        positions: the images of this part.
        views: how views are computed.
        kinds: the views of an item, from the name of the entry to ``weak``, ``strong`` or ``plain``.
        facts: its other entries: ``idx_*`` (the number within this part), ``y_*`` and ``d_*`` (the source domain).
        rotates: whether to add ReMixMatch's rotated view and its label ``rot_v``.
        test: whether to use images as they are seen at test time (``test_view``).
    """

    def __init__(
        self,
        data: SSDGData,
        positions: Sequence[int],
        views: Views,
        kinds: Mapping[str, str],
        facts: Sequence[str],
        rotates: bool = False,
        test: bool = False,
    ) -> None:
        self.data = data
        self.store = data.test_store if test else data.store
        self.positions = torch.tensor(positions)
        self.targets = data.labels[self.positions].tolist()
        self.views, self.view = views, views.spec
        self.kinds, self.facts, self.rotates = dict(kinds), tuple(facts), rotates

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, number: int) -> dict[str, Any]:
        position = self.positions[number]
        pixels = self.store[position[None]][0]
        item: dict[str, Any] = {name: self.views.make(kind, pixels) for name, kind in self.kinds.items()}
        known = {"idx": number, "y": self.targets[number], "d": int(self.data.domains[position])}
        item.update({name: known[name.partition("_")[0]] for name in self.facts})
        if self.rotates:
            quarters = int(torch.randint(4, ()))
            item |= {ROTATED: torch.rot90(item["x_ulb_s_0"], quarters, (1, 2)), "rot_v": quarters}
        return item

    def plain_images(self) -> list[tuple[Tensor, Tensor]]:
        """Un-augmented images and labels of every source domain, for plug-ins that use prototypes."""
        parts = [torch.from_numpy(part) for part in self.data.by_domain(self.positions.tolist())]
        images = [torch.stack([self.views.make("plain", pixels) for pixels in self.data.store[part]]) for part in parts]
        return [(views, self.data.labels[part]) for views, part in zip(images, parts, strict=True)]


class DomainDatasets(dict[str, DomainDataset]):
    """``train_lb``, ``train_ulb``, ``eval`` (held-out source images) and ``test`` (the target domain).

    Args:
        data: the whole experiment.
        names: the parameters of the algorithm's ``train_step``.
        views: how views are computed.
        weak_pair: both unlabelled views are weak (MeanTeacher and its relatives).
    """

    def __init__(self, data: SSDGData, names: Sequence[str], views: Views, weak_pair: bool = False) -> None:
        labelled = {name: kind for name, kind in VIEW_KINDS.items() if name in names and name.startswith("x_lb")}
        unlabelled = {name: kind for name, kind in VIEW_KINDS.items() if name in names and name.startswith("x_ulb")}
        if weak_pair:
            unlabelled = dict.fromkeys(unlabelled, "weak")
        split, plain = data.split, {"x_lb": "plain"}
        super().__init__(
            train_lb=DomainDataset(data, split.labelled, views, labelled, ("idx_lb", "y_lb", "d_lb")),
            train_ulb=DomainDataset(
                data, split.unlabelled, views, unlabelled, ("idx_ulb", "d_ulb"), rotates=ROTATED in names
            ),
            eval=DomainDataset(data, split.source_val, views, plain, ("y_lb",), test=True),
            test=DomainDataset(data, split.target, views, plain, ("y_lb",), test=True),
        )
        self.classes, self.sources = data.classes, data.sources

    def configure(self, args: Namespace) -> Namespace:
        """Set the arguments that USB's algorithms need to know about the data before they are built."""
        args.num_classes, args.num_domains = len(self.classes), len(self.sources)
        args.lb_dest_len, args.ulb_dest_len = len(self["train_lb"]), len(self["train_ulb"])
        args.num_labels = args.lb_dest_len
        return args
