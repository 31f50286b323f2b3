"""The public interface for extensions, to be imported by files passed with ``--extend``.

    from semilearn_ext.extend import Option, Plugin, PluginSpec, StepOutput, register

``register`` adds a spec with your own plug-in, algorithm, dataset or network as its implementation. Plug-ins and
algorithms are classes; datasets and networks are functions. See ``docs/extending.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from semilearn_ext import registry
from semilearn_ext.data.loaded import Loaded
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.data.splits import Item
from semilearn_ext.errors import UserError, shown
from semilearn_ext.settings import extensions
from semilearn_ext.specs import AlgorithmSpec, DatasetSpec, Needs, NetSpec, Option, PluginSpec, Spec

if TYPE_CHECKING:
    from semilearn_ext.nets.heads import ClassifierHead
    from semilearn_ext.plugins.base import Plugin, StepOutput, View, Wants

T = TypeVar("T")

__all__ = [
    "AlgorithmSpec",
    "ClassifierHead",
    "DatasetSpec",
    "ImageTreeSpec",
    "Item",
    "Loaded",
    "Needs",
    "NetSpec",
    "Option",
    "Plugin",
    "PluginSpec",
    "StepOutput",
    "View",
    "Wants",
    "declare",
    "register",
]


def register(spec: Spec) -> Callable[[T], T]:
    """A decorator that registers ``spec`` with the decorated class or function as its implementation."""

    def add(implementation: T) -> T:
        module = sys.modules[implementation.__module__]
        file = getattr(module, "__file__", None)  # a notebook has none
        origin = extensions.loading() or (str(Path(file).resolve()) if file else module.__name__)
        name = getattr(implementation, "__qualname__", "")
        if not isinstance(spec, Spec):
            raise UserError(f"{origin}: register needs a spec, as in @register(PluginSpec(...)), got {shown(spec)}")
        if not name.isidentifier():
            raise UserError(
                f"{origin}: {shown(spec.name)}: register a class or function at the top level of the file, because it "
                f"is loaded by its name"
            )
        path = f"{module.__name__}:{name}"
        for other in registry.declared_by(origin):
            if other.implementation == path and getattr(module, name, implementation) is not implementation:
                raise UserError(
                    f"{origin}: {other.name!r} and {spec.name!r} are both implemented by {name!r}; give the two "
                    f"classes or functions different names"
                )
        registry.add(replace(spec, implementation=path), origin)
        return implementation

    return add


def declare(spec: Spec, file: str) -> None:
    """Register a spec that needs no implementation, such as that of a dataset in a common folder layout.

    Args:
        file: the extension, ``__file__``.
    """
    registry.add(spec, str(Path(file).resolve()))


def __getattr__(name: str) -> Any:
    """Import names that need torch on first use."""
    if name in ("Plugin", "StepOutput", "View", "Wants"):
        from semilearn_ext.plugins import base

        return getattr(base, name)
    if name == "ClassifierHead":
        from semilearn_ext.nets.heads import ClassifierHead

        return ClassifierHead
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
