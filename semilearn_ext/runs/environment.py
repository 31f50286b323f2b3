"""The environment of a run: versions, device and the project's git revision."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from semilearn_ext import __version__

_PACKAGES = ("torch", "torchvision", "semilearn", "numpy", "scikit-learn", "matplotlib", "pillow")


def describe(device: str, precision: str, views_on: str, processes: int, weights: str) -> dict[str, Any]:
    return {
        "semilearn_ext": __version__,
        "git": git_revision(),
        "python": sys.version.split()[0],
        "packages": {name: _version(name) for name in _PACKAGES},
        "platform": platform.platform(),
        "device": device,
        "precision": precision,
        "views_on": views_on,
        "processes": processes,
        "weights": weights,
    }


def git_revision() -> str | None:
    """The checked-out commit, with ``-dirty`` if files were changed; None outside a checkout."""
    project = Path(__file__).parents[2]
    if not (project / ".git").exists():
        return None
    command = ["git", "-C", str(project), "describe", "--always", "--abbrev=40", "--dirty"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
