"""Load the network of a finished run with its final weights.

The network is built by the algorithm of the run, because an algorithm may replace parts of it, and because the
algorithm is needed to compute which images are confident. Nothing is written to the run's folder, and the state of the
caller's random number generators is not changed.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.analysis.load_run import FinishedRun
from semilearn_ext.data.experiment import SSDGData, load_data, view_spec
from semilearn_ext.data.samplers import iterations_per_epoch
from semilearn_ext.data.splits import Item, Split
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import choose_device
from semilearn_ext.errors import UserError
from semilearn_ext.runs.ownership import different_data
from semilearn_ext.settings import Settings, with_values
from semilearn_ext.settings.fingerprint import run_identity


@dataclass(frozen=True)
class LoadedModel:
    """The algorithm of a run with the weights that were tested, in eval mode."""

    run: FinishedRun
    algorithm: SSDGBase

    @property
    def data(self) -> SSDGData:
        return self.algorithm.context.data

    @property
    def device(self) -> torch.device:
        return self.algorithm.context.device

    @property
    def net(self) -> nn.Module:
        """``net(x)`` returns the logits (N, C) and, as ``feat``, the inputs (N, D) of the classifier."""
        model = self.algorithm.model
        # SimMatch and CoMatch wrap the network in one that returns a projection of the features.
        return model.get_submodule("backbone") if self.algorithm.spec.projected_features else model


def load_model(run: FinishedRun, device: str = "auto", data_dir: Path | None = None) -> LoadedModel:
    """Load the model and the data of the run, from ``data_dir`` or from the run's own ``data_dir``."""
    settings = _settings(run, device)
    if data_dir is not None:
        settings = with_values(settings, data_dir=str(data_dir))
    data = load_data(settings)
    if different := different_data(run.result, data.digests()):
        warnings.warn(
            f"{run.path}: the run was trained on {different}; this analysis uses the images in {settings.data_dir}",
            stacklevel=2,
        )
    return _load(run, data)


def load_model_without_images(run: FinishedRun, device: str = "auto") -> LoadedModel:
    """Load only the model, for a machine without the images that it was trained on."""
    try:
        data = _data_without_images(run, _settings(run, device))
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:  # a foreign split
        raise UserError(f"{run.folder.split_file}: damaged ({type(error).__name__}: {error})") from None
    return _load(run, data)


def _settings(run: FinishedRun, device: str) -> Settings:
    """The settings of the run, without those that only matter for training, and with its recorded split."""
    return with_values(
        run.settings,
        device=device,
        average="none",
        splits="ours",
        split_file=str(run.folder.split_file),
        pretrained=False,
        pretrain_path="",
        precision="float32",
        views_on="cpu",
        compile=False,
        use_tensorboard=False,
        use_wandb=False,
        use_aim=False,
    )


def _load(run: FinishedRun, data: SSDGData) -> LoadedModel:
    state = checkpoint.load(run.checkpoint_file())
    device = choose_device(data.settings)
    # USB's hooks print to stdout when they are created.
    with _random_state_kept(device), contextlib.redirect_stdout(io.StringIO()):
        algorithm = training.build(RunContext(data.settings, data, device, ProcessGroup(), None, _identity(run)))
        checkpoint.restore(algorithm, state, run.checkpoint_file())
    if algorithm.ema is not None and data.settings.eval_with_ema:
        algorithm.ema.apply_shadow()
    algorithm.model.eval()
    return LoadedModel(run, algorithm)


def _identity(run: FinishedRun) -> dict[str, Any]:
    recorded = run.folder.read_identity().get("content")
    known = run_identity(run.settings, recorded) if isinstance(recorded, dict) else {}
    # The name of the user's own images may be that of a folder that is elsewhere by now; their content is compared.
    return {name: value for name, value in known.items() if name != "dataset_name"}


@contextlib.contextmanager
def _random_state_kept(device: torch.device) -> Iterator[None]:
    before = checkpoint.random_state(device)
    try:
        yield
    finally:
        checkpoint.restore_random_state(before, device)


def _data_without_images(run: FinishedRun, settings: Settings) -> SSDGData:
    """Data from ``split.json``: names, labels and domains of the source images, and the names of the classes."""
    content = run.folder.read_split()
    sources: list[str] = content["source_domains"]
    parts = [content[name] for name in ("train_x", "train_u", "val")]
    items = [Item(name, label, domain, name) for part in parts for name, label, domain in part]
    first, second = len(parts[0]), len(parts[0]) + len(parts[1])
    positions = list(range(len(items)))
    split = Split(positions[:first], positions[first:second], positions[second:], target=[])
    domains = torch.tensor([sources.index(item.domain) for item in items])
    counts = torch.bincount(domains[split.unlabelled], minlength=len(sources)).tolist()
    no_images = torch.empty(0, 3, settings.img_size, settings.img_size, dtype=torch.uint8)
    return SSDGData(
        settings=settings,
        store=no_images,
        test_store=no_images,
        items=items,
        labels=torch.tensor([item.label for item in items]),
        domains=domains,
        classes=tuple(content["classes"]),
        digest=content.get("images_sha256") or "",
        left_out={},
        sources=tuple(sources),
        split=split,
        split_file=None,
        short_classes={},
        view=view_spec(settings),
        steps_per_epoch=iterations_per_epoch(counts, settings.batch_size * settings.uratio // len(sources)),
        scale="",
    )
