"""Train: settings -> plan -> runs -> table. ``python train.py --help`` shows every setting."""

from __future__ import annotations

import sys
from typing import Any

from semilearn_ext.errors import exit_code_of
from semilearn_ext.settings import Settings, with_values
from semilearn_ext.settings.command_line import parse
from semilearn_ext.settings.domains import targets_of


def main() -> None:
    settings = parse(sys.argv[1:])

    # What needs torch and USB is imported where it is used: --help and mistakes do not wait for them.
    if settings.dry_run:
        from semilearn_ext.plan import describe_plan

        print(describe_plan(settings))
        return

    report([train_one(settings, target) for target in targets_of(settings)])


def train_one(settings: Settings, target: str) -> dict[str, Any]:
    from semilearn_ext import training

    group = training.join_processes(settings)
    outcome = training.run(with_values(settings, target_domain=target), group)
    if outcome.was_finished and group.is_main:
        print(f"{target}: finished before, not run again (--overwrite starts over)", file=sys.stderr)
    return outcome.result


def report(results: list[dict[str, Any]]) -> None:
    from semilearn_ext.engine import processes
    from semilearn_ext.report.summary import render

    if processes.from_environment().is_main:
        print(render(results))
    processes.leave()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
