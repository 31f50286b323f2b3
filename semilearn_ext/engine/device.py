"""The device of a run: precision, memory format, compilation."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils._pytree import tree_map

from semilearn_ext.data.device_images import free_memory
from semilearn_ext.data.packed import send
from semilearn_ext.engine.nvidia import unusable_gpu
from semilearn_ext.errors import UserError, counted
from semilearn_ext.registry import ALGORITHMS
from semilearn_ext.settings import Settings

CPU_BFLOAT16 = ("avx512_bf16", "amx_bf16")
CPU_INSTRUCTIONS: dict[torch.dtype, tuple[str, ...]] = {
    torch.bfloat16: (*CPU_BFLOAT16, "bf16"),
    torch.float16: ("avx512_fp16", "amx_fp16", "fp16_arith"),
}
"""What a CPU calls its instructions for a type; the last name is Arm's. Without any of them the type is emulated."""
DTYPES: dict[str, torch.dtype | None] = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The values of ``precision`` and the data types of the forward pass."""


def choose_device(settings: Settings, local_rank: int = 0) -> torch.device:
    """The first available of CUDA, MPS and CPU, or the one given by ``device``. Process k uses GPU k."""
    problems = {
        kind: find() if settings.device in ("auto", kind) else ""
        for kind, find in (("cuda", functools.partial(unusable_gpu, local_rank)), ("mps", unusable_apple_gpu))
    }
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    available = {kind: exists and not problems.get(kind) for kind, exists in available.items()}
    name = settings.device
    if name == "auto":
        name = next(kind for kind, usable in available.items() if usable)
        for vendor, problem in zip(("NVIDIA", "Apple"), problems.values(), strict=True):
            if problem:
                warnings.warn(f"running on the {name} instead of the {vendor} GPU: {problem}", stacklevel=1)
    elif not available[name]:
        usable = ", ".join(kind for kind, usable in available.items() if usable)
        reason = f" ({problems[name]})" if problems[name] else ""
        raise UserError(f"{settings.where('device')}: no {name} device is available{reason}; usable: {usable}")
    if name == "cuda":
        if local_rank >= torch.cuda.device_count():
            raise UserError(
                f"{settings.where('device')}: process {local_rank} of this machine has no GPU: only "
                f"{torch.cuda.device_count()} are visible; lower torchrun's --nproc_per_node, or use --device cpu"
            )
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(name)


def unusable_apple_gpu() -> str:
    """Why the GPU that macOS lists cannot be used; empty if it can be used or there is none.

    Virtual machines, such as those of hosted continuous integration, may list a GPU without any memory.
    """
    if not torch.backends.mps.is_available():
        return ""
    try:
        torch.ones(1, device="mps")
    except RuntimeError as error:
        return f"it failed to store a number ({str(error).splitlines()[0][:200]})"
    return ""


@dataclass(frozen=True)
class Precision:
    """The data type of the forward pass; plain float32 if ``dtype`` is None."""

    device: torch.device
    dtype: torch.dtype | None

    @property
    def name(self) -> str:
        """The value of the setting ``precision``."""
        return next(name for name, dtype in DTYPES.items() if dtype is self.dtype)

    @property
    def is_fast(self) -> bool:
        """Whether the GPU's fast profile applies: less than float32, on CUDA."""
        return self.device.type == "cuda" and self.dtype is not None

    @property
    def context(self) -> Callable[[], contextlib.AbstractContextManager[object]]:
        """USB's ``amp_cm``: a function that returns the context manager of a forward pass."""
        if self.dtype is None:
            return contextlib.nullcontext
        return functools.partial(torch.autocast, self.device.type, dtype=self.dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """A gradient scaler, which does nothing unless the precision is float16."""
        return torch.amp.GradScaler(self.device.type, enabled=self.dtype == torch.float16)

    def slow_reason(self) -> str:
        """Why this precision is slow here, and what to use instead; empty if it is not."""
        if self.device.type != "cpu" or self.dtype is None or _has_any(CPU_INSTRUCTIONS[self.dtype]):
            return ""
        return (
            f"this CPU has no instructions for {self.name}, so it is emulated, up to 20 times slower than float32; use "
            f"precision: float32, which is what auto selects on a CPU"
        )


def choose_precision(settings: Settings, device: torch.device) -> Precision:
    """The precision given by ``precision``. ``auto`` means half precision on CUDA and float32 elsewhere.

    A CPU uses bfloat16 on request, even without hardware support (see :meth:`Precision.slow_reason`). Algorithms that
    do not work in half precision use float32.
    """
    reason = ALGORITHMS.get(settings.base, settings.where("algorithm")).needs_float32
    if settings.precision != "auto":
        if reason and DTYPES[settings.precision] is not None:
            raise UserError(f"{settings.where('precision')}: {settings.base} needs float32: {reason}")
        return Precision(device, DTYPES[settings.precision])
    return half_precision(device) if device.type == "cuda" and not reason else Precision(device, None)


def fast_precision(device: torch.device) -> Precision:
    """The fastest precision for networks that are not trained.

    Not every CPU has hardware for half precision, and not every version of macOS supports bfloat16.
    """
    if device.type == "cuda" or (device.type == "cpu" and _has_any(CPU_BFLOAT16)):
        return half_precision(device)
    return Precision(device, None)


def _has_any(instructions: tuple[str, ...]) -> bool:
    """Whether this CPU has one of them."""
    return any(torch.cpu.get_capabilities().get(kind) for kind in instructions)


def half_precision(device: torch.device) -> Precision:
    """bfloat16 if the hardware supports it, otherwise float16."""
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return Precision(device, torch.float16)
    return Precision(device, torch.bfloat16)


def choose_views(settings: Settings, device: torch.device) -> str:
    """Where views are computed: ``cpu`` or ``device``. ``auto`` means the device on CUDA.

    Not on MPS: Apple's GPUs share their memory with a fast CPU, and the device kernels have not been measured there.
    """
    if settings.views_on != "auto":
        return settings.views_on
    return "device" if device.type == "cuda" else "cpu"


def evaluation_batch(settings: Settings, device: torch.device) -> int:
    """Images per forward pass without gradient: ``eval_batch_size``, or a power of two that fits the free memory.

    The estimate uses half of the free memory and assumes that the network needs 32 times the size of a float32 image,
    which is three times what ResNet-18 needs. Batches of more than 1024 images are no faster.
    """
    if settings.eval_batch_size or device.type != "cuda":
        return settings.eval_batch_size or 256
    fitting = free_memory(device) // 2 // (32 * 3 * 4 * settings.img_size**2)
    return 1 << (max(16, min(fitting, 1024)).bit_length() - 1)


def set_backends(precision: Precision) -> None:
    """Enable cuDNN's autotuning and TF32 convolutions for the fast profile, and disable them otherwise.

    Matrix products outside autocast are those of the losses; they stay in full float32, which is torch's default.
    """
    if precision.device.type == "cuda":
        torch.backends.cudnn.benchmark = precision.is_fast
        torch.backends.cudnn.allow_tf32 = precision.is_fast


def use_channels_last(settings: Settings, device: torch.device) -> bool:
    return settings.channels_last or choose_precision(settings, device).is_fast


def place(model: nn.Module, settings: Settings, device: torch.device) -> nn.Module:
    """Move ``model`` to ``device``, and set the memory format and compilation given in the settings."""
    model.to(device)
    if use_channels_last(settings, device):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.compile:
        _check_compiler(settings, device)
        model.compile()
    return model


def autocast_network(model: nn.Module, precision: Precision) -> None:
    """Make ``model`` compute in ``precision`` but return float32, for steps that do not support autocast."""
    forward = model.forward

    def in_precision(*args: object, **kwargs: object) -> object:
        with precision.context():
            output = forward(*args, **kwargs)
        return tree_map(torch.Tensor.float, output)

    model.forward = in_precision


def _check_compiler(settings: Settings, device: torch.device) -> None:
    """On CUDA, the kernels themselves need no compiler, but the code that launches them does."""
    needed = {
        "cpu": ("C++", [os.environ.get("CXX", ""), "g++", "clang++", "cl"]),
        "cuda": ("C", [os.environ.get("CC", ""), "gcc", "clang", "cl"]),
    }
    language, compilers = needed.get(device.type, ("", []))
    if language and not any(name and shutil.which(name) for name in compilers):
        where = "a CPU" if device.type == "cpu" else "an NVIDIA GPU"
        raise UserError(f"{settings.where('compile')}: needs a {language} compiler on {where}, but none is installed")


def to_device(value: torch.Tensor, device: torch.device, channels_last: bool) -> torch.Tensor:
    """Move a tensor of a batch to ``device``; images get the memory format of the network."""
    return send(value, device, torch.channels_last if channels_last and value.ndim == 4 else torch.preserve_format)


def describe(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({counted(torch.get_num_threads(), 'thread')})" if device.type == "cpu" else str(device)
