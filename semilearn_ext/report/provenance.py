"""The software and hardware of the runs in a report, from their ``environment.json``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from semilearn_ext.errors import UserError


def environments(runs: pd.DataFrame) -> dict[str, Counter[str]]:
    """The values of every property (git revision, device, versions), each with its number of runs."""
    counts: dict[str, Counter[str]] = {}
    for source in runs["source"]:
        try:
            properties = _flat(source.read_environment())
        except (UserError, TypeError, AttributeError):
            properties = {"environment": "not recorded"}
        for name, value in properties.items():
            counts.setdefault(name, Counter())[value] += 1
    return counts


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    named = {
        "semilearn_ext": environment.get("semilearn_ext"),
        "git revision": environment.get("git"),
        "device": environment.get("device"),
        "processes": environment.get("processes"),
        "weights": environment.get("weights"),
        "python": environment.get("python"),
        **dict(sorted(environment.get("packages", {}).items())),
    }
    return {name: str(value) for name, value in named.items() if value is not None}
