"""Finished runs that an analysis is made of: find them, and refuse what cannot be analysed or compared. No torch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError
from semilearn_ext.report.names import method_title
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import Settings, read_resolved

_CONFIG = "config.yaml"


@dataclass(frozen=True)
class FinishedRun:
    """A run that has its ``result.json``."""

    folder: RunFolder
    settings: Settings
    result: dict[str, Any]

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def method(self) -> str:
        return self.settings.method

    def read_split(self) -> dict[str, Any]:
        """``split.json``: which images were labelled, unlabelled and held out."""
        path = self.path / "split.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: cannot be read: {error}") from None
        return content

    def checkpoint_file(self) -> Path:
        """The checkpoint after the last iteration."""
        last = self.path / f"checkpoint_{self.result['iterations']:08d}.pt"
        if not last.is_file():
            raise UserError(f"{last}: the checkpoint of a finished run is gone; train it again with --overwrite")
        return last


def open_run(path: Path) -> FinishedRun:
    folder = RunFolder(path)
    if not folder.config_file.is_file():
        raise UserError(f"{path}: no run there (no {_CONFIG}); a run is a folder …/<method>/<target>/seed<k>")
    if not folder.is_finished:
        raise UserError(f"{path}: the run is not finished; the train.py command that began it goes on with it")
    return FinishedRun(folder, read_resolved(folder.config_file), folder.read_result())


def find_runs(paths: Iterable[Path]) -> list[FinishedRun]:
    """The runs in ``paths``, which are runs or folders of them, each once and by name. All must be finished."""
    found = sorted({config.parent for path in paths for config in _configs_below(path)})
    return [open_run(path) for path in found]


def _configs_below(path: Path) -> list[Path]:
    configs = list(path.rglob(_CONFIG)) if path.is_dir() else []
    if not configs:
        raise UserError(f"{path}: no run in there (no {_CONFIG} in any folder)")
    return configs


def check_comparable(runs: Sequence[FinishedRun], except_for: frozenset[str] = frozenset()) -> None:
    """Refuse runs that differ in more than the method, or in what ``except_for`` names besides."""
    first = runs[0]
    ours = _circumstances(first, except_for)
    for other in runs[1:]:
        for name, theirs in _circumstances(other, except_for).items():
            if ours[name] != theirs:
                shown = f" ({ours[name]} and {theirs})" if isinstance(theirs, str) else ""
                raise UserError(f"{first.path} and {other.path} cannot be compared: the {name} differs{shown}")


def _circumstances(run: FinishedRun, except_for: frozenset[str]) -> dict[str, Any]:
    """What two methods must share to be compared, by what it is called."""
    settings = run.settings
    own_folder = f" {Path(settings.data_dir).expanduser().resolve().name}" if settings.dataset == "folder" else ""
    shared: dict[str, Any] = {
        "dataset": settings.dataset + own_folder,
        "image size": f"{settings.img_size} px",
        "backbone": f"{settings.net}, {'pretrained' if settings.pretrained else 'from scratch'}",
        "number of labels a class": str(settings.labels_per_class),
        "target domain": settings.target_domain,
        "set of source domains": ", ".join(sorted(settings.source_domains)) or "all others",
        "seed": str(settings.seed),
    }
    if "seed" not in except_for and "target domain" not in except_for:
        shared["set of labelled images"] = {row[0] for row in run.read_split()["train_x"]}
    return {name: value for name, value in shared.items() if name not in except_for}


def names_of(runs: Sequence[FinishedRun]) -> list[str]:
    """What to call each run in a figure: its method, numbered where two runs share one."""
    titles = [method_title(run.method) for run in runs]
    counts, seen = Counter(titles), Counter[str]()
    names = []
    for title in titles:
        seen[title] += 1
        names.append(title if counts[title] == 1 else f"{title} ({seen[title]})")
    return names
