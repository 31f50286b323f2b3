"""``ssdg doctor``: check that training works on this machine. One line per check, with a remedy for every problem.

Every method takes one step on the device and one on the CPU, from the same weights and images, in float32; the losses
must agree. Methods that draw random numbers on the device get different numbers there, so their losses only have to be
finite.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semilearn_ext import registry, training
from semilearn_ext.bench.budget import Stopwatch, host_waits
from semilearn_ext.data import kernels, views
from semilearn_ext.data.device_images import SHARE, free_memory
from semilearn_ext.data.kernels import device as device_kernels
from semilearn_ext.data.kernels import plans
from semilearn_ext.data.loaders import SHARED_MEMORY
from semilearn_ext.data.packed import Packed
from semilearn_ext.data.view_spec import ViewSpec, draw_strong, draw_weak
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.device import (
    DTYPES,
    Precision,
    choose_device,
    choose_precision,
    choose_views,
    describe,
    unusable_apple_gpu,
)
from semilearn_ext.engine.nvidia import driver_version, unusable_gpu
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, settings_from
from semilearn_ext.settings.schema import KEYS
from semilearn_ext.specs import AlgorithmSpec

OK, NOTE, PROBLEM = "ok", "note", "PROBLEM"
TOLERANCE = 0.01
"""Relative difference of two float32 losses that can be explained by a different order of summation."""
PACS_BYTES = 9991 * 3 * 224**2
SHM_BYTES = 2**30
EVERY_IMAGE = 100.0
"""Replaces the loss threshold that Dash measures in its warm-up; no loss is as high, so every image is used."""
VIEWS_PER_SECOND = 6000
"""Needed to keep a current GPU busy with ResNet-18 at 224 px."""


class Finding(NamedTuple):
    """The result of a check; ``remedy`` says what to do about a problem."""

    status: str
    check: str
    text: str
    remedy: str = ""

    def line(self) -> str:
        return f"{self.status:8}{self.check:12}{self.text}" + (f"; {self.remedy}" if self.remedy else "")


def examine(device_name: str, methods: Sequence[str], values: Mapping[str, Any]) -> Iterator[Finding]:
    """Run all checks, one after the other.

    Args:
        methods: the methods that take one step each.
        values: their settings.
    """
    yield Finding(OK, "versions", f"Python {sys.version.split()[0]}, torch {torch.__version__} ({_built_for()})")
    precision = {"precision": values["precision"]} if "precision" in values else {}
    settings_from(**{name: value for name, value in values.items() if name in KEYS})  # one error, not one per method
    settings = settings_from(device=device_name, **precision)
    device = choose_device(settings)
    yield check_gpu(device)
    yield from check_memory(device)
    yield check_shm(SHARED_MEMORY)
    yield check_precision(settings, device)
    yield _without_a_crash("views", check_views, device)
    yield from (check_step(name, step, device, values) for name in methods for step in _steps_of(name))
    if device.type == "cuda":
        yield _without_a_crash("waits", check_waits, device)
    yield _without_a_crash("throughput", check_throughput, device)


def _without_a_crash(name: str, check: Callable[[torch.device], Finding], device: torch.device) -> Finding:
    """The result of a check that runs on the device; an error there is a problem like any other."""
    try:
        return check(device)
    except Exception as error:
        return Finding(PROBLEM, name, _one_line(error), "train with --device cpu and report this")


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:200]


def _built_for() -> str:
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"


def _steps_of(name: str) -> tuple[str, ...]:
    return tuple(registry.steps_of(registry.parse_method(name, "").base))


def check_gpu(device: torch.device) -> Finding:
    if reason := unusable_gpu(device.index or 0):
        return Finding(PROBLEM, "gpu", f"the NVIDIA GPU cannot be used: {reason}")
    if device.type == "cuda":
        capability = ".".join(map(str, torch.cuda.get_device_capability(device)))
        driver = driver_version() or "(unknown version)"
        return Finding(OK, "gpu", f"{describe(device)}, compute capability {capability}, driver {driver}")
    if device.type == "mps":
        return Finding(OK, "gpu", "Apple GPU (mps)")
    if reason := unusable_apple_gpu():
        return Finding(NOTE, "gpu", f"the Apple GPU cannot be used: {reason}; training runs on {describe(device)}")
    return Finding(NOTE, "gpu", f"no GPU; training runs on {describe(device)}")


def check_memory(device: torch.device) -> Iterator[Finding]:
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield Finding(OK, "memory", f"{free / 1e9:.1f} GB of main memory free")
    if device.type == "cpu":
        return
    free = free_memory(device)
    if SHARE * free >= PACS_BYTES:
        yield Finding(OK, "memory", f"{free / 1e9:.1f} GB of GPU memory free; PACS at 224 px fits (1.5 GB)")
    else:
        yield Finding(
            NOTE,
            "memory",
            f"{free / 1e9:.1f} GB of GPU memory free; PACS at 224 px stays on the host and is sent batch by batch",
            "close other programs that use the GPU, or use loader processes with --num_workers 4",
        )


def check_shm(path: Path) -> Finding:
    if not path.is_dir():
        return Finding(OK, "shm", f"no {path} on this system")
    free = shutil.disk_usage(path).free
    if free >= SHM_BYTES:
        return Finding(OK, "shm", f"{free / 1e9:.1f} GB free in {path}")
    return Finding(
        PROBLEM,
        "shm",
        f"only {free / 1e6:.0f} MB free in {path}, which loader processes use to pass batches",
        "start the container with --shm-size 8g, or train with --num_workers 0",
    )


def check_precision(settings: Settings, device: torch.device) -> Finding:
    """The precision that a run would take, and on a CPU what the others would cost."""
    chosen = choose_precision(settings, device)
    text = f"{chosen.name}, views on {choose_views(settings, device)}"
    if reason := chosen.slow_reason():
        return Finding(PROBLEM, "precision", f"{text}: {reason}")
    emulated = [name for name, dtype in DTYPES.items() if Precision(device, dtype).slow_reason()]
    if emulated:
        text += f"; this CPU would emulate {' and '.join(emulated)}, up to 20 times slower"
    return Finding(OK, "precision", text)


def check_views(device: torch.device, count: int = 96, size: int = 64) -> Finding:
    """Compare the device kernels with the CPU kernels."""
    rng, spec = torch.Generator().manual_seed(0), ViewSpec(size)
    images = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=rng)
    different, largest = 0, 0
    weak, strong = draw_weak(rng, count, spec), draw_strong(rng, count, spec)
    on_device = images.to(device)
    pairs = (
        (kernels.plain(images, spec), device_kernels.plain(on_device, spec)),
        (
            kernels.weak(images, spec, weak),
            device_kernels.weak(on_device, spec, Packed.of(plans.weak(weak, spec)).on(device)),
        ),
        (
            kernels.strong(images, spec, strong),
            device_kernels.strong(on_device, spec, Packed.of(plans.strong(strong, spec)).on(device)),
        ),
    )
    for pair in pairs:
        on_cpu, computed = (views.denormalise(part.cpu(), spec).int() for part in pair)
        change = (on_cpu - computed).abs()
        different, largest = different + int(change.count_nonzero()), max(largest, int(change.max()))
    text = f"{different} of {3 * images.numel()} grey levels differ from those of the CPU, by at most {largest}"
    if largest > 1:
        return Finding(PROBLEM, "views", text, "train with --views_on cpu and report this")
    return Finding(OK, "views", text)


def check_step(name: str, step: str, device: torch.device, values: Mapping[str, Any]) -> Finding:
    """Compare one step of a method on the device with the same step on the CPU."""
    check = f"{name}, step: {step}"
    start = time.perf_counter()
    try:
        loss, cpu_loss = (_loss(name, step, kind, values) for kind in (device.type, "cpu"))
    except UserError as error:
        if "adain" in str(error):
            return Finding(NOTE, "step", f"{check}: not checked; {error}")
        return Finding(PROBLEM, "step", f"{check}: {error}", "train the other methods and report this")
    except Exception as error:
        text = f"{check}: {_one_line(error)}"
        return Finding(PROBLEM, "step", text, "train it with --device cpu and report this")
    seconds = f"{time.perf_counter() - start:.1f} s"
    if not math.isfinite(loss):
        return Finding(PROBLEM, "step", f"{check}: the loss is {loss}", "train it with --device cpu and report this")
    if _base(name).draws_on_device and device.type != "cpu":
        return Finding(OK, "step", f"{check}: loss {loss:.4f}; uses random numbers of the device ({seconds})")
    if not math.isclose(loss, cpu_loss, rel_tol=TOLERANCE, abs_tol=1e-4):
        return Finding(
            PROBLEM,
            "step",
            f"{check}: loss {loss:.6f}, but {cpu_loss:.6f} on the CPU",
            "update the driver and torch; train it with --device cpu until then",
        )
    return Finding(OK, "step", f"{check}: loss {loss:.4f}, as on the CPU ({seconds})")


def _loss(name: str, step: str, device: str, values: Mapping[str, Any]) -> float:
    # If every image is confident, all terms of the loss are active, and rounding cannot change which images count.
    confident = {"p_cutoff": 0.0} if "p_cutoff" in _base(name).options else {}
    algorithm = _algorithm(name, step, device, **{"precision": "float32", **confident, **values})
    return algorithm.step(**_batch(algorithm)).total.item()


def _base(name: str) -> AlgorithmSpec:
    return registry.ALGORITHMS.get(registry.parse_method(name, "--methods").base, "--methods")


def _algorithm(name: str, step: str, device: str, **values: Any) -> SSDGBase:
    fixed = {"algorithm": name, "step": step, "device": device, "target_domain": "pen", "average": "none"}
    settings = settings_from(**{"batch_size": 12, "num_train_iter": 1, **values, **fixed})
    # USB's hooks and the algorithm print messages when they are built.
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* it is emulated")  # reported by check_precision
        algorithm = training.build(make_context(settings), logger=training.silent_logger())
    algorithm.epoch = 0  # USB sets it when it trains
    if hasattr(algorithm, "warmup"):
        algorithm.rho_init = EVERY_IMAGE
    return algorithm


def _batch(algorithm: SSDGBase) -> dict[str, Any]:
    return {key: value for dataset in algorithm.dataset_dict.values() for key, value in dataset[0, 0].items()}


def check_waits(device: torch.device) -> Finding:
    """Check that a reference step of the paper's method does not wait for the GPU."""
    algorithm = _algorithm("fixmatch_upcsc", "reference", device.type)
    for _ in range(2):  # the first step is a warm-up
        with host_waits(device) as waits:
            algorithm.step(**_batch(algorithm))
            algorithm.call_hook("after_train_step", "ParamUpdateHook")
    if not waits:
        return Finding(OK, "waits", "a step of fixmatch_upcsc never waits for the GPU")
    places = ", ".join(f"{place} ({count})" for place, count in waits.items())
    return Finding(PROBLEM, "waits", f"a step of fixmatch_upcsc waits for the GPU: {places}", "report this")


def check_throughput(device: torch.device, count: int = 48, size: int = 224, rounds: int = 10) -> Finding:
    """Weak and strong views per second at the paper's size."""
    rng, spec, watch = torch.Generator().manual_seed(0), ViewSpec(size), Stopwatch(device)
    images = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=rng).to(device)

    def make() -> None:
        views.weak(images, spec, rng)
        views.strong(images, spec, rng)

    for _ in range(2 if device.type == "cpu" else rounds):
        watch.wrap(make)()
    rate = 2 * count / min(watch.seconds)
    text = f"{rate:.0f} views per second at {size} px on {device.type}"
    if device.type == "cuda" and rate < VIEWS_PER_SECOND:
        return Finding(
            PROBLEM,
            "throughput",
            f"{text}, below the {VIEWS_PER_SECOND} that a fast GPU needs",
            "use nvidia-smi to check the GPU's clock and whether other programs use it",
        )
    return Finding(OK, "throughput", text + ("; measured on a CPU" if device.type == "cpu" else ""))
