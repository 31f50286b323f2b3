"""An algorithm's name and step -> a class in USB's registry: the adapted base, with plug-ins where the name says so."""

from __future__ import annotations

from typing import Any

from semilearn_ext.algorithms.adapt import adapt
from semilearn_ext.algorithms.dash import PortableDash
from semilearn_ext.algorithms.reference_step import ReferenceFixMatch, ReferenceStyleMatch
from semilearn_ext.engine.context import registry_name
from semilearn_ext.settings.methods import parse_name
from semilearn_ext.usb import ALGORITHMS

_PORTED: dict[str, Any] = {"dash": PortableDash}
_IN_REFERENCE_STEP: dict[str, Any] = {"fixmatch": ReferenceFixMatch, "stylematch": ReferenceStyleMatch}


def register(algorithm: str, step: str = "usb") -> None:
    """Make ``algorithm`` known to USB, if it is not yet."""
    key = registry_name(algorithm, step)
    if key in ALGORITHMS:
        return
    method = parse_name(algorithm, "algorithm")
    if method.plugins:
        register(method.base, step)
        base = ALGORITHMS[registry_name(method.base, step)]
        name = "".join([base.__name__, *(plugin.title() for plugin in method.plugins)])
        ALGORITHMS[key] = type(name, (base,), {"plugin_names": method.plugins, "__doc__": base.__doc__})
    elif step == "reference":
        ALGORITHMS[key] = _IN_REFERENCE_STEP[algorithm]
    else:
        ALGORITHMS[key] = adapt(algorithm, _PORTED.get(algorithm) or ALGORITHMS[algorithm])
