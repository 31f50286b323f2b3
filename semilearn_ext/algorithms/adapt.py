"""Adapt any USB algorithm class to this package's engine."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.cuda_calls import RedirectCuda
from semilearn_ext.engine.logged_numbers import without_reading
from semilearn_ext.semilearn_api import AlgorithmBase
from semilearn_ext.specs import AlgorithmSpec


def adapt(spec: AlgorithmSpec, algorithm: type[AlgorithmBase]) -> type[SSDGBase]:
    """A subclass of ``algorithm`` and SSDGBase that keeps the options and the training step of ``algorithm``."""
    body: dict[str, Any] = {"spec": spec, "__doc__": algorithm.__doc__}
    bases = (algorithm,) if issubclass(algorithm, SSDGBase) else (algorithm, SSDGBase)
    # USB builds a second network for averaged weights; the engine stores them in ``self.ema``.
    body["set_ema_model"] = SSDGBase.set_ema_model
    if spec.calls_cuda:
        body.update(_with_cuda_redirected(algorithm))
    body.update(without_reading(algorithm, body.get("train_step", algorithm.train_step)))
    return type(f"SSDG{algorithm.__name__}", bases, body)


def _with_cuda_redirected(algorithm: type[AlgorithmBase]) -> dict[str, Callable[..., Any]]:
    """``__init__`` and ``train_step`` that let an algorithm with calls of ``.cuda()`` run on any device."""

    def __init__(self: Any, args: Namespace, *rest: Any, **kwargs: Any) -> None:
        device = args.context.device
        self.redirect = nullcontext() if device.type == "cuda" else RedirectCuda(device)
        with self.redirect:
            algorithm.__init__(self, args, *rest, **kwargs)

    # The loaders read the names of the views from this function's signature.
    @functools.wraps(algorithm.train_step)
    def train_step(self: Any, **batch: Any) -> Any:
        with self.redirect:
            return algorithm.train_step(self, **batch)

    return {"__init__": __init__, "train_step": train_step}
