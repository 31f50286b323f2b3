"""Load finished runs for an analysis, and check that they can be compared. Does not import torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError
from semilearn_ext.report.methods import MethodId, setting_title
from semilearn_ext.report.records import check_fields
from semilearn_ext.runs.find import find_runs
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.settings import Settings
from semilearn_ext.settings.content import dataset_name


@dataclass(frozen=True)
class FinishedRun:
    """A run that has a result."""

    folder: RunFolder
    settings: Settings
    result: dict[str, Any]

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def method(self) -> MethodId:
        return MethodId.of_record(self.result)

    def checkpoint_file(self) -> Path:
        """The checkpoint after the last iteration."""
        path = self.folder.checkpoint_file(self.result["iterations"])
        if not path.is_file():
            raise UserError(f"{path}: the checkpoint of a finished run is missing; train it again with --overwrite")
        return path


def load_run(path: Path) -> FinishedRun:
    folder = RunFolder(path)
    if not folder.config_file.is_file():
        raise UserError(
            f"{path}: not a run ({folder.config_file.name} is missing); the path of a run ends in "
            f"<method>/<target>/seed<k>"
        )
    if not folder.is_finished:
        raise UserError(f"{path}: the run is not finished; re-run its training command to resume it")
    result = folder.read_checked_result()
    check_fields(result, str(folder.result_file))
    folder.check_evaluations(result)
    return FinishedRun(folder, folder.read_settings(), result)


def load_runs(paths: Iterable[Path]) -> list[FinishedRun]:
    """The runs at or below ``paths``, each once and sorted by name. All must be finished."""
    folders: dict[Path, RunFolder] = {}
    for path in paths:
        below = list(find_runs([path]))
        if not below:
            raise UserError(f"{path}: contains no runs")
        folders.update({folder.path.resolve(): folder for folder in below})
    return [load_run(folder.path) for _, folder in sorted(folders.items())]


def check_comparable(runs: Sequence[FinishedRun], except_for: frozenset[str] = frozenset()) -> None:
    """Raise an error if runs differ in more than the method and the properties in ``except_for``, or if one is given
    twice."""
    for number, run in enumerate(runs):
        if run.path.resolve() in {other.path.resolve() for other in runs[:number]}:
            raise UserError(f"{run.path}: the run is given twice; pass it once")
    check_conditions([(run.path, _conditions(run, except_for)) for run in runs])


def check_conditions(runs: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise an error if runs, given by path and conditions, differ in a condition. None means that it is unknown."""
    first_path, first = runs[0]
    for path, conditions in runs[1:]:
        for name, value in conditions.items():
            if value != first[name] and None not in (value, first[name]):
                values = f" ({first[name]} and {value})" if isinstance(value, str) else ""
                raise UserError(f"{first_path} and {path} cannot be compared: the {name} differs{values}")


def conditions_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that two methods must have in common to be compared."""
    return {
        "dataset": config["dataset"],
        "image size": f"{config['img_size']} px",
        "backbone": f"{config['net']}, {'pretrained' if config['pretrained'] else 'from scratch'}",
        "number of labels per class": str(config["labels_per_class"]),
        "set of source domains": ", ".join(sorted(config["source_domains"])) or "all others",
    }


def schedule_of(settings: Settings) -> str:
    """A description of the length of training, the images per step and the learning-rate schedule."""
    length = f"{settings.num_train_iter} iterations" if settings.num_train_iter else f"{settings.epoch} epochs"
    warm_up = f" after {settings.num_warmup_iter} of warm-up" if settings.num_warmup_iter else ""
    images = f"{settings.batch_size} + {settings.batch_size * settings.uratio} images per step"
    return f"{length} of {images}, {settings.lr_schedule} per {settings.lr_step}{warm_up}"


def comparison_title(runs: Sequence[FinishedRun]) -> str:
    """What comparable runs have in common, for the title of a figure."""
    settings, result = runs[0].settings, runs[0].result
    return (
        f"{setting_title(dataset_name(settings), settings.labels_per_class)}, target: {settings.target_domain}, seed "
        f"{settings.seed}; {result['iterations']} iterations, {settings.step} step, {result['scale']} scale"
    )


def _conditions(run: FinishedRun, except_for: frozenset[str]) -> dict[str, Any]:
    settings = run.settings
    conditions = {
        **conditions_of({**settings.flat(), "dataset": dataset_name(settings)}),
        "content of the images": run.result.get("images_sha256"),
        "decoding of the images": run.result.get("pixels_sha256"),
        "target domain": settings.target_domain,
        "seed": str(settings.seed),
        "training step": settings.step,
        "schedule": schedule_of(settings),
        "scale": run.result["scale"],
    }
    if "seed" not in except_for and "target domain" not in except_for:
        conditions["set of labelled images"] = {row[0] for row in run.folder.read_split()["train_x"]}
    return {name: value for name, value in conditions.items() if name not in except_for}


def check_one_experiment_per_method(runs: Sequence[FinishedRun]) -> None:
    """Raise an error if runs of one method differ in more than the seed and target, or if a run is given twice."""
    seen: dict[tuple[MethodId, str, int], FinishedRun] = {}
    experiments: dict[MethodId, FinishedRun] = {}
    for run in runs:
        first = experiments.setdefault(run.method, run)
        if first.result["config_hash"] != run.result["config_hash"]:
            raise UserError(
                f"{first.path} and {run.path}: both are runs of {run.method.title}, but with different settings; "
                f"train one of them with a --variant"
            )
        key = (run.method, run.settings.target_domain, run.settings.seed)
        if key in seen:
            raise UserError(f"{seen[key].path} and {run.path}: both are the same run; pass only one of them")
        seen[key] = run


def titles_of(runs: Sequence[FinishedRun]) -> list[str]:
    """A title for each run in a figure: that of its method, numbered if several runs have the same."""
    titles = [run.method.title for run in runs]
    counts, seen = Counter(titles), Counter[str]()
    numbered = []
    for title in titles:
        seen[title] += 1
        numbered.append(title if counts[title] == 1 else f"{title} ({seen[title]})")
    return numbered
