"""Detect an NVIDIA GPU that the installed torch cannot use, with the reason and the remedy.

torch only reports that no CUDA device is available, or fails at the first operation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import torch

DRIVER = Path("/proc/driver/nvidia/version")
CONTROL = Path("/dev/nvidiactl")
SIGNS = (DRIVER, CONTROL, Path("/usr/lib/wsl/lib/libcuda.so.1"))
"""Files that exist only with an NVIDIA driver: on Linux, in containers, and in the Windows Subsystem for Linux."""
HIDDEN = ("", "-1", "NoDevFiles")
"""Values of CUDA_VISIBLE_DEVICES with which the user, or SLURM, hides all GPUs."""
OLDEST_DRIVER = {11: 450, 12: 525, 13: 580}
"""The oldest driver for each major version of CUDA."""


def unusable_gpu(number: int = 0) -> str:
    """Why GPU ``number`` cannot be used and what to install; empty if it can be used or does not exist."""
    if torch.version.hip is not None or os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in HIDDEN:
        return ""
    if torch.cuda.is_available():
        try:
            return _unsupported_capability(number) if number < torch.cuda.device_count() else ""
        except RuntimeError as error:  # it is full, or reserved for the process of another user
            return f"it cannot be initialised ({str(error).splitlines()[0][:200]}); check nvidia-smi"
    if not any(path.exists() for path in SIGNS):
        return ""
    if torch.version.cuda is None:
        return f"the installed torch {torch.__version__} was built without CUDA; install a build with CUDA"
    driver, oldest = driver_version(), OLDEST_DRIVER.get(int(torch.version.cuda.partition(".")[0]), 0)
    if driver and int(driver.partition(".")[0]) < oldest:
        return (
            f"its driver {driver} is too old for CUDA {torch.version.cuda}, which the installed torch uses; install "
            f"driver {oldest} or newer, or a build of torch for an older CUDA"
        )
    if driver and not CONTROL.exists():
        return (
            f"its driver {driver} is loaded, but {CONTROL} does not exist; in a container, start it with GPUs (Docker: "
            f"--gpus all), elsewhere check nvidia-smi"
        )
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    hint = "" if visible is None else f" and CUDA_VISIBLE_DEVICES={visible}"
    return f"its driver {driver or '(unknown version)'} does not respond; check nvidia-smi{hint}"


def driver_version() -> str:
    """The version of the driver, such as ``470.57.02``; empty if it is unknown."""
    try:
        version = re.search(r"\b(\d{3,}\.\d[\d.]*)", DRIVER.read_text(errors="replace"))
    except OSError:
        return ""
    return version.group(1) if version else ""


def _unsupported_capability(number: int) -> str:
    capability, built_for = torch.cuda.get_device_capability(number), torch.cuda.get_arch_list()
    if not built_for or runs_on(capability, built_for):
        return ""
    newest = max(_architecture(name)[1] for name in built_for)
    wanted = "a newer" if capability > newest else "an older"
    return (
        f"{torch.cuda.get_device_name(number)} has compute capability {capability[0]}.{capability[1]}, but the "
        f"installed torch was built for {', '.join(built_for)}; install a build of torch for {wanted} CUDA"
    )


def runs_on(capability: tuple[int, int], built_for: Iterable[str]) -> bool:
    """Whether code for these architectures runs on a GPU: ``sm_75`` on 7.5 to 7.9, ``compute_75`` on all later ones."""
    for kind, version in map(_architecture, built_for):
        if version <= capability and (kind == "compute" or version[0] == capability[0]):
            return True
    return False


def _architecture(name: str) -> tuple[str, tuple[int, int]]:
    """``("sm", (9, 0))`` of ``sm_90a``."""
    kind, _, digits = name.rstrip("abcdef").partition("_")
    return kind, divmod(int(digits), 10)
