"""Describe the progress of a sweep's runs, for its live display, log and summary."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from semilearn_ext.errors import UserError, counted
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.result import TARGET


def reached(folder: Path) -> str:
    """``"iteration 40, target 68.3%"``: the last evaluation of a run, or an empty string before the first."""
    try:
        last = RunFolder(folder).read_metrics()[-1]
        return f"iteration {int(last['iteration'])}, target {float(last[TARGET]):.1%}"
    except (UserError, OSError, LookupError, TypeError, ValueError):
        return ""


def final(folder: Path) -> str:
    """``"target 71.2%"``: the final accuracy of a finished run."""
    result = _result(folder)
    return f"target {result['top1']['last']:.1%}" if result else ""


def accuracies(folders: Iterable[Path]) -> list[str]:
    """One line per method: the accuracy on every target, averaged over seeds, and the mean over targets."""
    groups: dict[tuple[str, int, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        if result := _result(folder):
            group = (result["dataset"], result["labels_per_class"], result["title"])
            groups[group][result["target_domain"]].append(100 * result["top1"]["last"])
    lines = []
    for (dataset, labels, title), targets in groups.items():
        means = {target: mean(values) for target, values in targets.items()}
        count = sum(map(len, targets.values()))
        by_target = ", ".join(f"{target} {value:.1f}" for target, value in means.items())
        lines.append(
            f"{title} on {dataset}, {counted(labels, 'label')} per class: {mean(means.values()):.1f} ({by_target}; "
            f"{counted(count, 'run')})"
        )
    return lines


def _result(folder: Path) -> dict[str, Any] | None:
    """The result of a run, or None if it is missing, incomplete or of another form."""
    try:
        result = RunFolder(folder).read_result()
        hash(tuple(result[name] for name in ("dataset", "labels_per_class", "title", "target_domain")))
        return result if type(result["top1"]["last"]) in (int, float) else None
    except (UserError, OSError, LookupError, TypeError, ValueError):
        return None
