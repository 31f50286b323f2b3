"""The benchmarks: which domains and classes each has, what the paper trained on it, and where its images are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from semilearn_ext.data import digits_mini
from semilearn_ext.data.splits import Item
from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.settings import Settings


class ImageStore(Protocol):
    """Images by position, decoded: ``store[positions]`` is uint8 (N, 3, H, W)."""

    def __getitem__(self, positions: torch.Tensor) -> torch.Tensor: ...

    def __len__(self) -> int: ...


class Benchmark(Protocol):
    """What the rest of the package needs to know about a benchmark. A new one is a class like these."""

    name: str
    domains: Sequence[str]
    classes: Sequence[str]
    paper: Mapping[str, Any] | None
    """The paper's settings where it used this benchmark, else None."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    def load(self, settings: Settings) -> tuple[ImageStore, list[Item]]: ...


class DigitsMini:
    """The embedded benchmark: see :mod:`semilearn_ext.data.digits_mini`."""

    name = "digits_mini"
    domains: Sequence[str] = digits_mini.DOMAINS
    classes: Sequence[str] = digits_mini.CLASSES
    paper: Mapping[str, Any] | None = None
    mean = (0.5, 0.5, 0.5)
    std = (0.5, 0.5, 0.5)

    def load(self, settings: Settings) -> tuple[ImageStore, list[Item]]:
        made = digits_mini.load(Path(settings.cache_dir).expanduser())
        items = [
            Item(name, int(label), domain)
            for domain in self.domains
            for name, label in zip(made[domain].origins, made[domain].labels, strict=True)
        ]
        images = torch.cat([torch.from_numpy(made[domain].images) for domain in self.domains])
        return images.permute(0, 3, 1, 2).contiguous(), items


BENCHMARKS: dict[str, Callable[[], Benchmark]] = {"digits_mini": DigitsMini}


def get_benchmark(settings: Settings) -> Benchmark:
    if settings.dataset not in BENCHMARKS:
        hint = did_you_mean(settings.dataset, BENCHMARKS) or f" (known: {', '.join(BENCHMARKS)})"
        raise UserError(f"{settings.where('dataset')}: {settings.dataset!r} is not a known benchmark{hint}")
    return BENCHMARKS[settings.dataset]()


def check_domains(settings: Settings, benchmark: Benchmark) -> None:
    """Unknown or contradictory ``target_domain`` and ``source_domains`` are refused here."""
    names = [("source_domains", name) for name in settings.source_domains]
    if settings.target_domain != "all":
        names.append(("target_domain", settings.target_domain))
    for key, name in names:
        if name not in benchmark.domains:
            hint = did_you_mean(name, [*benchmark.domains, "all"])
            raise UserError(
                f"{settings.where(key)}: {name!r} is not a domain of {benchmark.name} "
                f"({', '.join(benchmark.domains)}){hint}"
            )
    if settings.target_domain in settings.source_domains:
        raise UserError(
            f"{settings.where('source_domains')}: {settings.target_domain!r} is the target and cannot be a source"
        )


def targets(settings: Settings, benchmark: Benchmark) -> list[str]:
    """The domains to leave out, one run each."""
    return list(benchmark.domains) if settings.target_domain == "all" else [settings.target_domain]


def sources(settings: Settings, benchmark: Benchmark, target: str) -> list[str]:
    """The domains to train on when ``target`` is left out, in the benchmark's order."""
    wanted = settings.source_domains or benchmark.domains
    return [name for name in benchmark.domains if name in wanted and name != target]


def scale_of(settings: Settings, benchmark: Benchmark) -> str:
    """``paper`` when the run is of the size the paper's were, else ``reduced``."""
    flat = settings.flat()
    at_scale = benchmark.paper is not None and all(flat[name] == value for name, value in benchmark.paper.items())
    return "paper" if at_scale and not settings.num_train_iter else "reduced"
