"""The parts of USB's ``AlgorithmBase`` that plug-ins use, with type hints, which USB does not have."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Protocol

from torch import Tensor, nn


class UsbAlgorithm(Protocol):
    args: Namespace
    num_classes: int
    it: int
    distributed: bool
    model: nn.Module
    loader_dict: dict[str, Any]
    hooks_dict: dict[str, Any]
    out_dict: dict[str, Any]
    log_dict: dict[str, Tensor | float]
