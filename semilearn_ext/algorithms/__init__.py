"""Importing this registers everything with USB's algorithm registry.

USB's own names keep USB's own classes; beside each stands ``ssdg_<name>``, the same algorithm on any device and
on leave-one-domain-out data. ``semilearn.algorithms.get_algorithm`` builds either.
"""

from __future__ import annotations

from typing import Any

from semilearn_ext.algorithms.adapt import adapt
from semilearn_ext.algorithms.dash import PortableDash
from semilearn_ext.engine.context import registry_name
from semilearn_ext.settings.usb_options import CANNOT_RUN, USB_OPTIONS
from semilearn_ext.usb import ALGORITHMS

_PORTED: dict[str, Any] = {"dash": PortableDash}


def _register_usb_algorithms() -> None:
    for name in USB_OPTIONS:
        if name not in CANNOT_RUN and registry_name(name) not in ALGORITHMS:
            ALGORITHMS[registry_name(name)] = adapt(name, _PORTED.get(name, ALGORITHMS[name]))


_register_usb_algorithms()
