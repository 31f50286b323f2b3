"""Redirect ``tensor.cuda(gpu)``, which some of USB's algorithms call inside a step, to ``tensor.to(device)``.

A TorchFunctionMode intercepts every call on a tensor while it is active, so neither USB nor torch is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class RedirectCuda(TorchFunctionMode):
    """Within this context, ``tensor.cuda(...)`` means ``tensor.to(device)``."""

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
