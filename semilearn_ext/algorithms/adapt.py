"""Any USB algorithm class -> the same algorithm in this setting. The one place that adapts them."""

from __future__ import annotations

import functools
from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from semilearn_ext.engine.base import SSDGBase, Traits
from semilearn_ext.engine.cuda_calls import CudaMeans
from semilearn_ext.usb import AlgorithmBase

TRAITS: dict[str, Traits] = {
    "fixmatch": Traits(one_call=True),
    "freematch": Traits(one_call=True),
    "comatch": Traits(cuda_calls=True, projected_features=True),
    "meanteacher": Traits(weak_pair=True, teacher=True),
    "mixmatch": Traits(weak_pair=True),
    "pimodel": Traits(weak_pair=True),
    "simmatch": Traits(teacher=True, cuda_calls=True, projected_features=True),
    "vat": Traits(cuda_calls=True),
}


def adapt(name: str, usb_class: type[AlgorithmBase]) -> type[SSDGBase]:
    """``usb_class`` on top of SSDGBase. Its options and training step stay its own."""
    traits = TRAITS.get(name, Traits())
    body: dict[str, Any] = {"traits": traits, "__doc__": usb_class.__doc__}
    if traits.cuda_calls:
        body.update(_with_cuda_redirected(usb_class))
    return type(f"SSDG{usb_class.__name__}", (usb_class, SSDGBase), body)


def _with_cuda_redirected(usb_class: type[AlgorithmBase]) -> dict[str, Callable[..., Any]]:
    """``__init__`` and ``train_step`` of an algorithm that says ``.cuda()`` itself, for every device."""

    def __init__(self: Any, args: Namespace, *rest: Any, **kwargs: Any) -> None:
        device = args.context.device
        self.redirect = nullcontext() if device.type == "cuda" else CudaMeans(device)
        with self.redirect:
            usb_class.__init__(self, args, *rest, **kwargs)

    # The loaders read the names of the views off this function's signature.
    @functools.wraps(usb_class.train_step)
    def train_step(self: Any, **batch: Any) -> Any:
        with self.redirect:
            return usb_class.train_step(self, **batch)

    return {"__init__": __init__, "train_step": train_step}
