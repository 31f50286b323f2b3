"""What the runs of a report were made with, from their ``environment.json``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd


def environments(runs: pd.DataFrame) -> dict[str, Counter[str]]:
    """For every property (git revision, device, versions) its values, and how many runs have each."""
    found: dict[str, Counter[str]] = {}
    for path in runs["path"]:
        try:
            said = json.loads((path / "environment.json").read_text())
            properties = _flat(said)
        except (OSError, ValueError, TypeError, AttributeError):
            properties = {"environment": "not recorded"}
        for name, value in properties.items():
            found.setdefault(name, Counter())[value] += 1
    return found


def _flat(said: Mapping[str, Any]) -> dict[str, str]:
    named = {
        "semilearn_ext": said.get("semilearn_ext"),
        "git revision": said.get("git"),
        "device": said.get("device"),
        "processes": said.get("processes"),
        "weights": said.get("weights"),
        "python": said.get("python"),
        **said.get("packages", {}),
    }
    return {name: str(value) for name, value in named.items() if value is not None}
