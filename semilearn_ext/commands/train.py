"""Train one semi-supervised method on a leave-one-domain-out benchmark, in USB's own training loop.

  ssdg train --c fixmatch_upcsc_digits_mini.yaml                one run per target domain, followed by a results table
  ssdg train --c FILE --with_base                               also train the base without plug-ins, and compare
  ssdg train --c FILE --target_domain pen --seed 3              a single run
  ssdg train --c FILE --dry_run                                 show the plan without training
  torchrun --nproc_per_node 2 -m semilearn_ext train --c FILE   several processes

The command line takes precedence over the YAML file, which takes precedence over the defaults shown here.
Re-run the same command to resume an interrupted run; finished runs are skipped.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from semilearn_ext.commands.argument_types import add_trust
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, load_settings, with_values
from semilearn_ext.settings.command_line import add_settings
from semilearn_ext.settings.config_files import find_config
from semilearn_ext.settings.convert import convert
from semilearn_ext.settings.domains import targets_of
from semilearn_ext.settings.load import load_base_settings

HELP = "train one method, one run per target domain"


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "ssdg train --c FILE [--key value ...]"
    parser.add_argument(
        "--c", type=find_config, metavar="FILE", help="YAML config: a path, or a name from 'ssdg list configs'"
    )
    parser.add_argument(
        "--with_base",
        nargs="?",
        const="true",
        default="false",
        metavar="BOOL",
        help="also train the base algorithm without plug-ins, and compare the two (default: false)",
    )
    add_trust(parser)
    add_settings(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    """Load the settings, print the plan or train, and print the results table."""
    settings = settings_of(arguments)
    base = base_settings(arguments) if convert(arguments.with_base, bool, "--with_base") else None
    # Modules that need torch and USB are imported where they are used, so that --help and input errors are fast.
    if settings.dry_run:
        from semilearn_ext.plan import describe_plan

        print("\n\n".join(describe_plan(planned) for planned in (base, settings) if planned is not None))
        return
    base_results = [train_target(base, target) for target in targets_of(base)] if base is not None else []
    report([train_target(settings, target) for target in targets_of(settings)], base_results)


def settings_of(arguments: argparse.Namespace) -> Settings:
    """The settings of the config file, overridden by those of the command line."""
    return load_settings(arguments.c, _overrides(arguments))


def base_settings(arguments: argparse.Namespace) -> Settings:
    """The same settings without plug-ins."""
    settings = settings_of(arguments)
    if not settings.plugins:
        raise UserError(f"--with_base: {settings.algorithm} has no plug-ins, so there is nothing to compare it with")
    return load_base_settings(arguments.c, _overrides(arguments))


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    own = ("command", "call", "c", "with_base")
    return {name: value for name, value in vars(arguments).items() if name not in own}


def train_target(settings: Settings, target: str) -> dict[str, Any]:
    """Train with ``target`` as the target domain, or read the result if that run is finished."""
    from semilearn_ext import training
    from semilearn_ext.report.records import check_fields
    from semilearn_ext.runs.folder import RunFolder, run_path

    group = training.join_processes(settings)
    settings = with_values(settings, target_domain=target)
    outcome = training.run(settings, group)
    if outcome.was_finished and group.is_main:
        check_fields(outcome.result, str(RunFolder(run_path(settings)).result_file))
        print(f"{target}: already finished, skipping (use --overwrite to run it again)", file=sys.stderr)
    return outcome.result


def report(results: list[dict[str, Any]], base_results: list[dict[str, Any]]) -> None:
    from semilearn_ext import distributed
    from semilearn_ext.report.summary import render, render_comparison

    if distributed.from_environment().is_main:
        print(render_comparison(results, base_results) if base_results else render(results))
    distributed.destroy()
