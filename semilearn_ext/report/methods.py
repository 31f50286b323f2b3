"""Names and titles of methods, benchmarks and label counts in reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from semilearn_ext.errors import counted
from semilearn_ext.registry import ALGORITHMS, DATASETS, PLUGINS, method_title


@dataclass(frozen=True, order=True)
class MethodId:
    """A method as reports identify it: the base algorithm, its plug-ins and the name of a variant."""

    base: str
    plugins: tuple[str, ...] = ()
    variant: str = ""
    recorded_title: str = field(default="", compare=False, repr=False)
    """The title in the record, for plug-ins and algorithms that are not registered in this process."""

    @classmethod
    def of_record(cls, result: Mapping[str, Any]) -> MethodId:
        """The method of a run with this ``result.json``."""
        return cls(result["base"], tuple(result["plugins"]), result["variant"], result["title"])

    @property
    def name(self) -> str:
        """The name on the command line and of the run's folder: ``fixmatch_upcsc--top1_proxy``."""
        name = "_".join((self.base, *self.plugins))
        return f"{name}--{self.variant}" if self.variant else name

    @property
    def title(self) -> str:
        """``FixMatch + UPCSC (top1 proxy)``."""
        registered = self.base in ALGORITHMS and all(plugin in PLUGINS for plugin in self.plugins)
        if self.recorded_title and not registered:
            return self.recorded_title
        return method_title(self.base, self.plugins, self.variant)

    @property
    def baseline(self) -> MethodId | None:
        """The base algorithm without plug-ins, with which the method is compared; None for the base itself."""
        return MethodId(self.base) if self.plugins or self.variant else None


def dataset_title(dataset: str) -> str:
    return DATASETS.get(dataset, "dataset").title if dataset in DATASETS else dataset


def domains_of(dataset: str) -> tuple[str, ...]:
    """The domains of a registered dataset; empty for a user's own data."""
    return DATASETS.get(dataset, "dataset").domains if dataset in DATASETS else ()


def labels_title(labels: int) -> str:
    return f"{counted(labels, 'label')} per class"


def setting_title(dataset: str, labels: int) -> str:
    """A benchmark and its label count: ``PACS, 10 labels per class``."""
    return f"{dataset_title(dataset)}, {labels_title(labels)}"
