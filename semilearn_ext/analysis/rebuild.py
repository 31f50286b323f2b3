"""A finished run's network as it was after the last iteration, built anew by its own algorithm.

Through the algorithm, because an algorithm may replace parts of the network, and because it alone knows which images it
is confident of. Nothing is written into the run's folder, and the caller's random numbers go on as if nothing had been.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.analysis.finished import FinishedRun
from semilearn_ext.data import catalog
from semilearn_ext.data.samplers import iterations_per_epoch
from semilearn_ext.data.splits import Item, Split
from semilearn_ext.data.ssdg import SSDGData, load_data
from semilearn_ext.data.views import ViewSpec
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import choose_device
from semilearn_ext.engine.processes import Processes
from semilearn_ext.settings import Settings, with_values


@dataclass(frozen=True)
class Rebuilt:
    """A run's algorithm with the weights that were tested, in eval mode."""

    run: FinishedRun
    algorithm: Any

    @property
    def data(self) -> SSDGData:
        data: SSDGData = self.algorithm.context.data
        return data

    @property
    def device(self) -> torch.device:
        device: torch.device = self.algorithm.device
        return device

    @property
    def net(self) -> nn.Module:
        """``net(x)`` gives the logits (N, C) and, as ``feat``, the features (N, D) they are made of."""
        model: nn.Module = self.algorithm.model
        # SimMatch and CoMatch wrap the network in one that gives a projection of the features instead.
        return model.get_submodule("backbone") if self.algorithm.traits.projected_features else model


def rebuild(run: FinishedRun, device: str = "auto", data_dir: Path | None = None) -> Rebuilt:
    """With the run's data, found where the run found them or in ``data_dir``."""
    settings = _settings(run, device)
    if data_dir is not None:
        settings = with_values(settings, data_dir=str(data_dir))
    return _rebuilt(run, load_data(settings))


def rebuild_without_images(run: FinishedRun, device: str = "auto") -> Rebuilt:
    """Without any of the images the run was trained on: they may be gone, or on another machine."""
    return _rebuilt(run, _data_without_images(run, _settings(run, device)))


def _settings(run: FinishedRun, device: str) -> Settings:
    """The run's settings without what only training needs, and with the very images it had as labelled."""
    return with_values(
        run.settings,
        device=device,
        split_file=str(run.path / "split.json"),
        pretrained=False,
        pretrain_path="",
        amp=False,
        compile=False,
        use_tensorboard=False,
        use_wandb=False,
        use_aim=False,
    )


def _rebuilt(run: FinishedRun, data: SSDGData) -> Rebuilt:
    state = checkpoint.load(run.checkpoint_file())
    device = choose_device(data.settings)
    # USB's hooks print when they are made.
    with _random_numbers_kept(device), contextlib.redirect_stdout(io.StringIO()):
        algorithm = training.build(RunContext(data.settings, data, device, Processes(), folder=None))
        algorithm.restore(state)
    if data.settings.eval_with_ema:
        algorithm.ema.apply_shadow()
    algorithm.model.eval()
    return Rebuilt(run, algorithm)


@contextlib.contextmanager
def _random_numbers_kept(device: torch.device) -> Iterator[None]:
    before = checkpoint.random_state(device)
    try:
        yield
    finally:
        checkpoint.restore_random_state(before, device)


def _data_without_images(run: FinishedRun, settings: Settings) -> SSDGData:
    """What ``split.json`` knows: names, labels and domains of the source images, and what the classes are called."""
    content = run.read_split()
    sources: list[str] = content["source_domains"]
    parts = [content[name] for name in ("train_x", "train_u", "val")]
    items = [Item(name, label, sources[number], name) for part in parts for name, label, number in part]
    first, second = len(parts[0]), len(parts[0]) + len(parts[1])
    everything = list(range(len(items)))
    split = Split(everything[:first], everything[first:second], everything[second:], target=[])
    domains = torch.tensor([sources.index(item.domain) for item in items])
    counts = torch.bincount(domains[split.unlabelled], minlength=len(sources)).tolist()
    benchmark = catalog.BENCHMARKS[settings.dataset]()
    return SSDGData(
        settings=settings,
        store=torch.empty(0, 3, settings.img_size, settings.img_size, dtype=torch.uint8),
        items=items,
        labels=torch.tensor([item.label for item in items]),
        domains=domains,
        # Runs made before the names were kept: the data have to be there.
        classes=tuple(content.get("classes") or load_data(settings).classes),
        left_out={},
        sources=tuple(sources),
        split=split,
        view=ViewSpec(settings.img_size, settings.flip, settings.cutout, benchmark.mean, benchmark.std),
        steps_per_epoch=iterations_per_epoch(counts, settings.batch_size * settings.uratio // len(sources)),
        scale="",
    )
