"""One leave-one-domain-out experiment's data: images, labels, domains and who is who."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semilearn_ext.data import catalog
from semilearn_ext.data.samplers import iterations_per_epoch
from semilearn_ext.data.split_files import apply_split
from semilearn_ext.data.splits import Item, Split, as_json, leave_one_out
from semilearn_ext.data.views import ViewSpec
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from semilearn_ext.settings.domains import check_batch, targets_of
from semilearn_ext.settings.domains import sources as sources_of


@dataclass(frozen=True)
class SSDGData:
    """Everything about the data of one run. Positions index ``store``, ``labels`` and ``domains`` alike."""

    settings: Settings
    store: catalog.ImageStore
    items: list[Item]
    labels: torch.Tensor
    """(N,) class numbers."""
    domains: torch.Tensor
    """(N,) number of the source domain; -1 for the target and what is not used."""
    classes: tuple[str, ...]
    left_out: dict[str, str]
    """Broken images that were left out, with the reason."""
    sources: tuple[str, ...]
    split: Split
    view: ViewSpec
    steps_per_epoch: int
    scale: str

    @property
    def epochs(self) -> int:
        """Epochs to train, the last one maybe cut short by ``num_train_iter``."""
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

    def split_json(self) -> dict[str, Any]:
        return {
            "dataset": self.settings.dataset,
            "target_domain": self.settings.target_domain,
            "source_domains": list(self.sources),
            "labels_per_class": self.settings.labels_per_class,
            "seed": self.settings.seed,
            "classes": list(self.classes),
            **as_json(self.split, self.items, self.sources),
            "left_out": self.left_out,
        }


def load_data(settings: Settings, world: int = 1) -> SSDGData:
    """Find the images, split them, and check that the batch can be made of them by ``world`` processes."""
    targets_of(settings)
    benchmark = catalog.get_benchmark(settings)
    sources = sources_of(settings, settings.target_domain)
    check_batch(settings, len(sources), world)
    loaded = benchmark.load(settings)
    items = loaded.items
    split = leave_one_out(
        items,
        dataset=benchmark.name,
        target=settings.target_domain,
        sources=sources,
        labels_per_class=settings.labels_per_class,
        seed=settings.seed,
        classes=loaded.classes,
        held_out=loaded.held_out,
        where=settings.where("labels_per_class"),
    )
    if settings.split_file:
        split = _given_split(settings, items, split, sources, len(loaded.classes))
    number = {name: k for k, name in enumerate(sources)}
    domains = torch.tensor([number.get(item.domain, -1) for item in items])
    per_domain = settings.batch_size * settings.uratio // len(sources)
    counts = torch.bincount(domains[split.unlabelled], minlength=len(sources))
    steps = iterations_per_epoch(counts.tolist(), per_domain)
    if steps == 0:
        raise UserError(
            f"{settings.where('batch_size')}: {per_domain} unlabelled images a domain a step, but domain "
            f"{sources[int(counts.argmin())]!r} has only {int(counts.min())}; lower batch_size or uratio"
        )
    return SSDGData(
        settings=settings,
        store=loaded.store,
        items=items,
        labels=torch.tensor([item.label for item in items]),
        domains=domains,
        classes=loaded.classes,
        left_out=loaded.left_out,
        sources=tuple(sources),
        split=split,
        view=ViewSpec(settings.img_size, settings.flip, settings.cutout, benchmark.mean, benchmark.std),
        steps_per_epoch=steps,
        scale=catalog.scale_of(settings, benchmark),
    )


def _given_split(settings: Settings, items: list[Item], default: Split, sources: list[str], classes: int) -> Split:
    name = settings.split_file.replace("{target}", settings.target_domain).replace("{seed}", str(settings.seed))
    split = apply_split(Path(name).expanduser(), items, default, settings.target_domain, sources)
    expected = settings.labels_per_class * classes * len(sources)
    if len(split.labelled) != expected:
        raise UserError(
            f"{settings.where('labels_per_class')}: {settings.labels_per_class} means {expected} labelled images, "
            f"but {name} has {len(split.labelled)}"
        )
    return split
