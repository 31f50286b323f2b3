"""The door for extensions: what a file passed with ``--extend`` imports.

    from semilearn_ext.extend import Option, Plugin, PluginSpec, StepOutput, register

``register`` makes a spec known; with a plug-in, algorithm, dataset or network of your own as its implementation.
Plug-ins and algorithms may be given as classes, datasets and networks as functions: see ``docs/extending.md``.
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
    """Decorator: ``spec`` is known from now on, and what is decorated is its implementation."""

    def add(implementation: T) -> T:
        module = sys.modules[implementation.__module__]
        file = getattr(module, "__file__", None)  # a notebook has none
        origin = str(Path(file).resolve()) if file else module.__name__
        name: Any = implementation
        registry.add(replace(spec, implementation=f"{module.__name__}:{name.__qualname__}"), origin)
        return implementation

    return add


def declare(spec: Spec, file: str) -> None:
    """Make a spec known that needs no code of its own, such as that of a dataset in an ordinary folder layout.

    Args:
        file: the extending file: ``__file__``.
    """
    registry.add(spec, str(Path(file).resolve()))


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name in ("Plugin", "StepOutput", "View", "Wants"):
        from semilearn_ext.plugins import base

        return getattr(base, name)
    if name == "ClassifierHead":
        from semilearn_ext.nets.heads import ClassifierHead

        return ClassifierHead
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
