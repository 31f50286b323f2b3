"""Keep the numbers that USB's steps log on the GPU. USB reads each with ``.item()``, which waits for the device.

All of USB's steps end in the same way: they pass their loss to ``process_out_dict``, and then the numbers to log to
``process_log_dict``. Between these two calls a TorchFunctionMode makes ``.item()`` return the tensor itself. The
computations of the step are not affected, and neither USB nor torch is changed. A number is read when it is used.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from semilearn_ext.semilearn_api import AlgorithmBase


class KeepOnDevice(TorchFunctionMode):
    """Within this context, ``tensor.item()`` returns the tensor itself, detached."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.item and len(args) == 1:
            return args[0].detach()
        return func(*args, **(kwargs or {}))


def without_reading(algorithm: type[AlgorithmBase], train_step: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Methods for a subclass of ``algorithm`` whose ``train_step`` does not read logged numbers from a GPU."""

    # The loaders read the names of the views from this function's signature.
    @functools.wraps(train_step)
    def step(self: Any, **batch: torch.Tensor) -> object:
        # The mode ends with the step, even if the step raises an error.
        with ExitStack() as self.while_logging:
            return train_step(self, **batch)

    def process_out_dict(self: Any, *args: object, **kwargs: object) -> object:
        result = algorithm.process_out_dict(self, *args, **kwargs)
        if self.device.type != "cpu":
            self.while_logging.enter_context(KeepOnDevice())
        return result

    def process_log_dict(self: Any, *args: object, **kwargs: object) -> object:
        self.while_logging.close()
        return algorithm.process_log_dict(self, *args, **kwargs)

    return {"train_step": step, "process_out_dict": process_out_dict, "process_log_dict": process_log_dict}
