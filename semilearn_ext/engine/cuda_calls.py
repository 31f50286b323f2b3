"""Some of USB's algorithms call ``tensor.cuda(gpu)`` in the middle of a step. Here that means ``tensor.to(device)``.

A TorchFunctionMode sees every call on a tensor while it is active, so nothing of USB or torch is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CudaMeans(TorchFunctionMode):
    """Within this context, ``tensor.cuda(...)`` is ``tensor.to(device)``."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0].to(self.device)
        return func(*args, **(kwargs or {}))
