"""A network and data for stock USB that make a training step cheap, deterministic and easy to recompute."""

from __future__ import annotations

import random
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from semilearn import get_algorithm, get_data_loader
from torch import Tensor, nn
from torch.utils.data import Dataset

from semilearn_ext.data.views import ViewSpec
from semilearn_ext.registry import ALGORITHMS, PLUGINS, incompatible

CLASSES, DOMAINS, SIZE, FEATURES = 6, 3, 16, 12
HOSTS = [spec.name for spec in ALGORITHMS if not spec.unavailable and not incompatible(spec, PLUGINS.get("upcsc", ""))]
"""Every base that supports plug-ins."""
HALF_CONFIDENT: dict[str, dict[str, Any]] = {
    **{
        base: {"p_cutoff": 0.6}
        for base in ("comatch", "defixmatch", "fixmatch", "flexmatch", "pseudolabel", "simmatch", "stylematch", "uda")
    },
    "adamatch": {"p_cutoff": 0.9},
    "dash": {"num_wu_iter": 1},
}
"""Options with which a base is confident about some images in the first steps of a run, but not about all."""


class ToyNet(nn.Module):
    """A network in USB's form: (N, 3, 16, 16) images, 12 features.

    With ``noisy`` it has batch norm and dropout, so its outputs depend on the batch and on the random numbers drawn;
    without, images are processed independently of each other.
    """

    num_features = FEATURES

    def __init__(self, num_classes: int, noisy: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, FEATURES, 2, stride=2)
        self.norm = nn.BatchNorm2d(FEATURES) if noisy else nn.Identity()
        self.drop = nn.Dropout(0.2 if noisy else 0)
        self.fc = nn.Linear(FEATURES, num_classes)
        with torch.no_grad():
            self.fc.weight *= 16

    def forward(self, x: Tensor, only_fc: bool = False, only_feat: bool = False, **_: Any) -> Any:
        if only_fc:
            return self.fc(x)
        feat = self.drop(self.norm(self.conv2(self.conv1(x).tanh())).tanh().mean((2, 3)))
        return feat if only_feat else {"logits": self.fc(feat), "feat": feat}

    def group_matcher(self, coarse: bool = False, prefix: str = "") -> dict[str, str]:
        return {"stem": rf"^{prefix}conv1", "blocks": rf"^{prefix}conv2|{prefix}norm"}


def toy_net(num_classes: int, noisy: bool = False, **_: Any) -> ToyNet:
    return ToyNet(num_classes, noisy)


noisy_net = partial(toy_net, noisy=True)


class ToyImages(Dataset[dict[str, Any]]):
    """Images of random colours, determined by ``seed``, with every view that any of USB's algorithms needs."""

    view = ViewSpec(SIZE)

    def __init__(self, part: str, count: int, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        kinds = ("x_lb", "x_lb_s") if part == "lb" else ("x_ulb_w", "x_ulb_s", "x_ulb_s_0", "x_ulb_s_1", "x_ulb_p")
        self.labels = torch.arange(count) % CLASSES
        self.domains = torch.arange(count) // CLASSES % DOMAINS
        colours = 2 * torch.randn(CLASSES, 3, 1, 1, generator=rng)[self.labels]
        self.views = {name: colours + torch.randn(count, 3, SIZE, SIZE, generator=rng) for name in kinds}
        self.facts = {f"idx_{part}": torch.arange(count), f"d_{part}": self.domains}
        if part == "lb":
            self.facts["y_lb"] = self.labels
        self.targets = self.labels.tolist()

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {name: values[number] for name, values in {**self.views, **self.facts}.items()}

    def plain_images(self) -> list[tuple[Tensor, Tensor]]:
        rows = [self.domains == domain for domain in range(DOMAINS)]
        return [(self.views["x_lb"][row], self.labels[row]) for row in rows]


def datasets() -> dict[str, ToyImages]:
    return {
        name: ToyImages(part, 36, seed) for seed, (name, part) in enumerate((("train_lb", "lb"), ("train_ulb", "ulb")))
    }


def loaders(config: Namespace, data: Mapping[str, Any]) -> dict[str, Any]:
    """USB's own loaders of ``data``; without evaluation images, the labelled ones are used."""
    load = partial(get_data_loader, config, num_workers=0)
    train = {
        "train_lb": load(data["train_lb"], config.batch_size),
        "train_ulb": load(data["train_ulb"], config.batch_size * config.uratio),
    }
    held_out = {"eval": data["train_lb"], **{name: data[name] for name in ("eval", "test") if name in data}}
    for name, images in held_out.items():
        train[name] = load(images, config.eval_batch_size, data_sampler=None, drop_last=False)
    return train


def build(config: Namespace, net: Callable[..., nn.Module] = toy_net, data: Mapping[str, Any] | None = None) -> Any:
    """USB's ``get_algorithm`` after seeding, as USB's ``train.py`` does, with loaders; Dash's warm-up is done."""
    random.seed(config.seed)
    np.random.seed(config.seed)
    torch.manual_seed(config.seed)
    algorithm = get_algorithm(config, net, None, None)
    algorithm.loader_dict = loaders(config, data or datasets())
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    return algorithm


def first_batch(algorithm: Any) -> dict[str, Tensor]:
    labelled, unlabelled = (next(iter(algorithm.loader_dict[name])) for name in ("train_lb", "train_ulb"))
    return {**labelled, **unlabelled}


def begin_step(algorithm: Any, batch: Mapping[str, Tensor] | None = None) -> None:
    """The first step of a run without its plug-ins and update."""
    algorithm.epoch = 0
    algorithm.call_hook("before_run")
    algorithm.call_hook("before_train_epoch")
    batch = first_batch(algorithm) if batch is None else batch
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**algorithm.process_batch(**batch))


def network(algorithm: Any) -> ToyNet:
    """The network itself, which CoMatch and SimMatch wrap."""
    net: ToyNet = getattr(algorithm.model, "backbone", algorithm.model)
    return net
