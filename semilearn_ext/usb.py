"""For users of USB: importing this module registers every method with USB's algorithm registry.

    import semilearn_ext.usb
    config = get_config({"algorithm": "fixmatch_upcsc", ...})

``<base>_<plugin>`` is stock USB's algorithm with the plug-in, and uses USB's loaders, ``Trainer``, ``train()`` and
checkpoints. ``ssdg_<base>`` and ``ssdg_<base>_<plugin>`` are the same methods on this package's engine.
:func:`get_datasets` returns leave-one-domain-out data in USB's format, and :func:`register` adds a method with several
plug-ins.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from semilearn_ext.algorithms import compose
from semilearn_ext.data.experiment import load_data
from semilearn_ext.data.usb_datasets import DomainDatasets, Transform, Views
from semilearn_ext.errors import UserError
from semilearn_ext.registry import ALGORITHMS as SPECS
from semilearn_ext.registry import methods, parse_method, steps_of
from semilearn_ext.semilearn_api import ALGORITHMS
from semilearn_ext.settings import settings_from

__all__ = ["DomainDatasets", "get_datasets", "register"]


def register(algorithm: str) -> type:
    """Register ``algorithm`` (such as ``fixmatch_upcsc_fbcsa``) with stock USB, if necessary, and return its class."""
    base = parse_method(algorithm, "algorithm").base
    if "usb" not in steps_of(base):
        raise UserError(f"algorithm: {base!r} is not available in stock USB; train it with ssdg train")
    registered: type = ALGORITHMS[compose.register_stock(algorithm)]
    return registered


def get_datasets(
    algorithm: str,
    target_domain: str,
    *,
    weak: Transform | None = None,
    strong: Transform | None = None,
    plain: Transform | None = None,
    **settings: Any,
) -> DomainDatasets:
    """Leave-one-domain-out datasets with the views that ``algorithm`` uses.

    Args:
        algorithm: a name in USB's registry, which determines the views.
        target_domain: the domain that is left out of training.
        weak, strong, plain: transforms from PIL images to tensors; each replaces one of this package's views. The plain
            view is used for evaluation. Pass all three if their size or normalisation differs from this package's.
        settings: any data or view setting of this package: ``dataset``, ``data_dir``, ``labels_per_class``, ``seed``,
            ``img_size`` ... (``ssdg train --help`` lists them).
    """
    names = list(signature(register(algorithm).train_step).parameters)[1:]  # type: ignore[attr-defined]
    if "x_ulb_p" in names and (weak or strong or plain):
        raise UserError(f"{algorithm}: its style view needs this package's views; do not pass weak, strong or plain")
    data = load_data(settings_from(target_domain=target_domain, **settings))
    base = SPECS.get(parse_method(algorithm, "algorithm").base, "algorithm")
    return DomainDatasets(data, names, Views(data.view, weak, strong, plain), base.weak_pair)


for _name in methods():
    _steps = steps_of(parse_method(_name, "algorithm").base)
    if "usb" in _steps:
        register(_name)
    compose.register(_name, _steps[0])
