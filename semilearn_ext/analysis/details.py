"""Read the ``details.json`` of finished runs, one panel per method. Does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semilearn_ext.analysis.load_run import FinishedRun, check_comparable, check_one_experiment_per_method
from semilearn_ext.errors import UserError
from semilearn_ext.report.methods import MethodId, setting_title
from semilearn_ext.report.metrics import IMAGES

MAX_PANELS = 2


@dataclass(frozen=True)
class Panel:
    """The runs of one method, which differ only in the seed, and their details on one set of images."""

    method: MethodId
    seeds: tuple[int, ...]
    classes: tuple[str, ...]
    confusions: list[list[list[int]]]
    calibrations: list[list[dict[str, Any]]]
    errors: tuple[float, ...]
    """The expected calibration error of each run."""

    @property
    def title(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        return f"{self.method.title} ({'seed' if len(self.seeds) == 1 else 'mean of seeds'} {seeds})"


def read_panels(runs: Sequence[FinishedRun], images: str) -> list[Panel]:
    """One panel per method, at most two; all runs on the same target."""
    check_comparable(runs, except_for=frozenset({"seed"}))
    check_one_experiment_per_method(runs)
    by_method: dict[MethodId, list[FinishedRun]] = {}
    for run in runs:
        by_method.setdefault(run.method, []).append(run)
    if len(by_method) > MAX_PANELS:
        names = ", ".join(method.name for method in by_method)
        raise UserError(f"expected runs of at most {MAX_PANELS} methods, got {len(by_method)}: {names}")
    return [_panel(method, method_runs, images) for method, method_runs in by_method.items()]


def _panel(method: MethodId, runs: list[FinishedRun], images: str) -> Panel:
    runs = sorted(runs, key=lambda run: run.settings.seed)
    details = [run.folder.read_details() for run in runs]
    for run, content in zip(runs, details, strict=True):
        if images not in content["images"] or f"{images}/ece" not in run.result["metrics"]:
            raise UserError(f"--images: {run.path} did not measure {IMAGES[images]}")
        if _form(content, images) != _form(details[0], images):
            raise UserError(f"{run.path}: has other classes or bins than {runs[0].path}; draw them separately")
    return Panel(
        method=method,
        seeds=tuple(run.settings.seed for run in runs),
        classes=tuple(details[0]["classes"]),
        confusions=[content["images"][images]["confusion"] for content in details],
        calibrations=[content["images"][images]["calibration"] for content in details],
        errors=tuple(run.result["metrics"][f"{images}/ece"] for run in runs),
    )


def _form(content: dict[str, Any], images: str) -> tuple[list[str], int]:
    """The names of the classes and the number of bins."""
    return content["classes"], len(content["images"][images]["calibration"])


def file_name(figure: str, run: FinishedRun, images: str) -> str:
    settings = run.settings
    return f"{figure}_{settings.dataset}_{settings.labels_per_class}lpc_{settings.target_domain}_{images}"


def heading(run: FinishedRun, images: str) -> str:
    """The title of a figure: ``digits_mini, 10 labels per class, target: pen; images: the target domain``."""
    settings = run.settings
    setting = setting_title(settings.dataset, settings.labels_per_class)
    return f"{setting}, target: {settings.target_domain}; images: {IMAGES[images]}"
