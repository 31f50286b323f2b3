"""torchvision's ResNet-18 (He et al., CVPR 2016, https://arxiv.org/abs/1512.03385), from scratch or pretrained."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import torch
from torch import nn
from torchvision import models

from semilearn_ext.errors import UserError, shown
from semilearn_ext.nets.classifier_net import ClassifierNet
from semilearn_ext.settings import Settings
from semilearn_ext.settings.content import file_hash


def build(settings: Settings) -> Callable[..., ClassifierNet]:
    weights = imagenet_weights(settings.pretrain_path) if settings.pretrained else None

    def builder(num_classes: int, **_: Any) -> ClassifierNet:
        return resnet18(num_classes, weights, settings.classifier_bias)

    return builder


def resnet18(num_classes: int, weights: dict[str, torch.Tensor] | None, bias: bool = True) -> ClassifierNet:
    """ResNet-18 for C classes.

    Args:
        num_classes: C.
        weights: backbone weights from :func:`imagenet_weights`, or None to start from scratch.
        bias: whether the classifier has a bias.
    """
    backbone = models.resnet18()
    num_features = backbone.fc.in_features
    backbone.fc = nn.Identity()
    if weights is not None:
        load_backbone(backbone, weights)
    return ClassifierNet(backbone, num_features, num_classes, bias)


def imagenet_weights(path: str) -> dict[str, torch.Tensor]:
    """The weights in ``path``, or torchvision's own from TORCH_HOME, which are downloaded if necessary.

    Raises a UserError if they are not available.
    """
    if path:
        return read_weights(Path(path))
    weights = models.ResNet18_Weights.IMAGENET1K_V1
    file = Path(torch.hub.get_dir()) / "checkpoints" / Path(weights.url).name
    if not os.path.lexists(file):
        try:
            weights.get_state_dict(progress=True, check_hash=True)
        except (URLError, OSError, RuntimeError) as error:
            raise UserError(
                f"pretrained: no ImageNet weights: {file} does not exist and the download failed ({error}); put the "
                f"file there, pass one with --pretrain_path, or set --pretrained false"
            ) from None
    # torchvision checks the file, whose name contains the beginning of its SHA-256, only when it downloads it.
    digest = file_hash(str(file), "pretrained")
    if not digest.startswith(file.stem.rpartition("-")[2]):
        raise UserError(
            f"pretrained: {file}: not torchvision's file (its SHA-256 starts with {digest}); remove it to download it "
            f"again, or pass your own weights with --pretrain_path"
        )
    return read_weights(file)


def read_weights(path: Path) -> dict[str, torch.Tensor]:
    """Read the names and tensors from a file of PyTorch weights."""
    path = path.expanduser()
    if not path.is_file():
        raise UserError(f"pretrain_path: {path}: no such file{_is_folder(path)}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"pretrain_path: {path}: not a file of PyTorch weights ({reason})") from None
    for name in ("state_dict", "model"):
        content = content.get(name, content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(v, torch.Tensor) for v in content.values()):
        raise UserError(f"pretrain_path: {path}: expected names and tensors, found {type(content).__name__}")
    for name, value in content.items():
        if problem := _problem(str(name), value):
            raise UserError(f"pretrain_path: {path}: {shown(name)} {problem}; the file is damaged, or not of weights")
    return content


def _problem(name: str, value: torch.Tensor) -> str:
    """What is wrong with the values of a weight, or an empty string."""
    if name.endswith("num_batches_tracked"):
        return ""
    if not value.is_floating_point():  # it would be rounded, or lose its imaginary part
        return f"has the type {str(value.dtype).removeprefix('torch.')}, expected floating-point numbers"
    if value.layout != torch.strided or value.is_meta or value.untyped_storage().nbytes() < value.nbytes:
        return "is not a plain tensor"
    if not value.isfinite().all():
        return "contains values that are not finite"
    return "is negative" if name.endswith("running_var") and bool((value < 0).any()) else ""


def _is_folder(path: Path) -> str:
    return " (it is a folder)" if os.path.isdir(path) else ""


def load_backbone(backbone: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load all weights except those of the ImageNet classifier."""
    load_weights(backbone, {name: value for name, value in weights.items() if not name.startswith("fc.")})


def load_weights(network: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    """Load ``weights`` as float32. Missing, extra or misshapen ones are an error."""
    try:
        network.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in weights.items()})
    except RuntimeError as error:
        first = " ".join(str(error).split())[:160]
        raise UserError(f"pretrain_path: the file does not fit the network: {first}") from None
