"""Adapt any USB algorithm class to this package's engine."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from inspect import signature
from typing import Any, cast

from semilearn_ext.data.loaders import ENTRIES
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.cuda_calls import RedirectCuda
from semilearn_ext.engine.logged_numbers import without_reading
from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.semilearn_api import AlgorithmBase
from semilearn_ext.specs import AlgorithmSpec


def adapt(spec: AlgorithmSpec, algorithm: type[AlgorithmBase]) -> type[SSDGBase]:
    """A subclass of ``algorithm`` and SSDGBase that keeps the options and the training step of ``algorithm``."""
    _check(spec, algorithm)
    body: dict[str, Any] = {"spec": spec, "__doc__": algorithm.__doc__}
    bases = (algorithm,) if issubclass(algorithm, SSDGBase) else (algorithm, SSDGBase)
    # USB builds a second network for averaged weights; the engine stores them in ``self.ema``.
    body["set_ema_model"] = SSDGBase.set_ema_model
    if spec.calls_cuda:
        body.update(_with_cuda_redirected(algorithm))
    body.update(without_reading(algorithm, body.get("train_step", algorithm.train_step)))
    return type(f"SSDG{algorithm.__name__}", bases, body)


def _check(spec: AlgorithmSpec, algorithm: type[AlgorithmBase]) -> None:
    """Raise an error if the class of an extension cannot be an algorithm."""
    where, implementation = f"algorithm {spec.name!r}", cast(object, algorithm)
    if not isinstance(implementation, type) or not issubclass(implementation, AlgorithmBase):
        raise UserError(f"{where}: {spec.implementation} is not a subclass of USB's AlgorithmBase")
    if algorithm.train_step is AlgorithmBase.train_step:
        raise UserError(f"{where}: {algorithm.__name__} has no train_step")
    names = list(signature(algorithm.train_step).parameters)[1:]
    for name in names:
        if name not in ENTRIES:
            hint = did_you_mean(name, ENTRIES) or f" (batches have {', '.join(sorted(ENTRIES))})"
            raise UserError(f"{where}: train_step: {name!r} is not an entry of the batches{hint}")
    if not any(name.startswith("x_ulb") for name in names) and algorithm.train is AlgorithmBase.train:
        raise UserError(
            f"{where}: train_step takes no unlabelled images; derive {algorithm.__name__} from USB's Supervised"
        )


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
