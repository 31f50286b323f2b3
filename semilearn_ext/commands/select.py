"""Choose settings by source validation: run a grid on development seeds, rank it, and write the winner's config.

  ssdg select --c fixmatch_upcsc_digits_mini.yaml --grid temperature=1,0.5,0.2 --dev_seeds 11-13 --jobs 2
  ssdg select --c FILE --grid lr=0.001,0.003 plugin_weight=0.3,1 --dev_seeds 11,12 --gpus 0,1

Every combination is trained on every target and development seed. They are ranked by the accuracy after the last
iteration on held-out images of the source domains; the target domain is not used. Choose seeds that you do not report.

Writes trials.csv with one line per run, ranking.csv, and selected.yaml, the winner's config, to --out. Re-run the same
command to continue an interrupted selection.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from semilearn_ext import files
from semilearn_ext.commands import sweep as sweep_command
from semilearn_ext.commands.argument_types import numbers, pair
from semilearn_ext.errors import UserError
from semilearn_ext.runs import sweep
from semilearn_ext.runs.job import Job, State
from semilearn_ext.settings import Settings
from semilearn_ext.settings.command_line import add_settings
from semilearn_ext.settings.config_files import config_dir, find_config
from semilearn_ext.settings.fingerprint import hash_of, scientific
from semilearn_ext.settings.load import COMMAND_LINE

if TYPE_CHECKING:
    import pandas as pd

HELP = "choose settings on development seeds by source validation"
SAVE_DIR = "runs/select"
_NOT_SETTINGS = {"c", "grid", "dev_seeds", "out", *sweep_command.LAUNCHER_OPTIONS}
_RESERVED = {
    *("seed", "target_domain", "algorithm", "variant", "save_dir", "labels_per_class"),
    *("dataset", "dataset_name", "data_dir", "source_domains", "splits", "split_file", "few_labels", "on_bad_image"),
}
"""Settings that change on what the accuracy is measured, or that the command chooses itself."""


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "ssdg select --c FILE --grid KEY=A,B,... --dev_seeds 11-13 [--key value ...]"
    chosen = parser.add_argument_group("what to choose")
    chosen.add_argument("--c", type=find_config, required=True, metavar="FILE", help="config file")
    chosen.add_argument(
        "--grid",
        nargs="+",
        action="extend",
        type=pair,
        required=True,
        metavar="KEY=A,B",
        help="values to try for a setting; several settings are combined",
    )
    chosen.add_argument(
        "--dev_seeds",
        type=numbers,
        required=True,
        metavar="11-13",
        help="development seeds, which must not be among the seeds that you report",
    )
    chosen.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the ranking (default: save_dir/<name of the config>)"
    )
    sweep_command.add_launcher(parser)
    add_settings(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.report.selection import rank, read_trials, shown

    overrides = {name: value for name, value in vars(arguments).items() if name not in _NOT_SETTINGS}
    sweep_command.check_not_given(overrides, ("seed", "variant"), "select")
    overrides.setdefault("save_dir", SAVE_DIR)
    points = grid_points(arguments.grid)
    plan = sweep_command.plan_of_grid(
        sweep.Grid(configs=[arguments.c], overrides=overrides, seeds=arguments.dev_seeds, points=points)
    )
    check_different(plan.settings.values())
    sweep_command.launch(arguments, plan)
    jobs = [Job.read(job.folder) for job in plan.jobs]
    if any(job.status.state is not State.DONE for job in jobs):
        print("Re-run the same command for the ranking once all runs are finished")
        return
    trials = read_trials(plan.settings, [name for name, _ in arguments.grid])
    targets = sorted(set(trials["target"]))
    ranking = rank(trials, targets)
    print(shown(ranking, len(targets)))
    out = arguments.out or plan.save_dir / arguments.c.stem
    winner = next(run for run in plan.settings.values() if run.variant == ranking["point"].iloc[0])
    write(out, trials, ranking, winner_config(arguments.c, winner, [name for name, _ in arguments.grid]))


def grid_points(grid: Sequence[tuple[str, str]]) -> list[dict[str, str]]:
    """Every combination of the values, each with its own ``variant``, such as ``temperature_0.2``."""
    names = [name for name, _ in grid]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{COMMAND_LINE}: --grid: {name} is given twice; list all its values at once")
        if name in _RESERVED:
            raise UserError(f"{COMMAND_LINE}: --grid: {name} cannot be chosen by source validation; use ssdg sweep")
    values = [[value.strip() for value in text.split(",")] for _, text in grid]
    for name, listed in zip(names, values, strict=True):
        if not all(listed) or len(set(listed)) < len(listed):
            raise UserError(f"{COMMAND_LINE}: --grid: {name}: expected different values separated by commas")
    if math.prod(map(len, values)) > sweep.MAX_RUNS:
        raise UserError(f"{COMMAND_LINE}: --grid: more than {sweep.MAX_RUNS} combinations")
    points = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    return [{**point, "variant": "_".join(f"{name}_{value}" for name, value in point.items())} for point in points]


def check_different(runs: Iterable[Settings]) -> None:
    """Refuse points that are one experiment: the same number written twice, or a setting that changes no result."""
    known: dict[str, str] = {}
    for settings in runs:
        about = {**scientific(settings), "target_domain": settings.target_domain, "seed": settings.seed, "variant": ""}
        first = known.setdefault(hash_of(about), settings.variant)
        if first != settings.variant:
            raise UserError(f"{COMMAND_LINE}: --grid: {first} and {settings.variant} are the same experiment; drop one")


def winner_config(config: Path, winner: Settings, names: Iterable[str]) -> dict[str, Any]:
    """The config file, overridden with the winner's values of the settings ``names``."""
    chosen = {name: value for name, value in winner.flat().items() if name in {*names, "variant"}}
    packaged = config.resolve().is_relative_to(config_dir().resolve())
    base = config.resolve().relative_to(config_dir().resolve()) if packaged else config.resolve()
    return {"base": base.as_posix(), **chosen}


def write(out: Path, trials: pd.DataFrame, ranking: pd.DataFrame, config: Mapping[str, Any]) -> None:
    from semilearn_ext.report.writers import csv_text

    texts = {
        out / "trials.csv": csv_text(trials),
        out / "ranking.csv": csv_text(ranking),
        out / "selected.yaml": yaml.safe_dump(dict(config), sort_keys=False),
    }
    for path, text in texts.items():
        files.write_text(path, text)
        print(f"Wrote {path}")
