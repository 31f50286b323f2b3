"""Train: settings -> plan -> runs -> table. ``python train.py --help`` shows every setting."""

from __future__ import annotations

import sys

from semilearn_ext.errors import exit_code_of
from semilearn_ext.settings import Settings, with_values
from semilearn_ext.settings.command_line import parse


def main() -> None:
    settings = parse(sys.argv[1:])

    # Everything below needs torch and USB, which take seconds to import; --help and mistakes above do not.
    from semilearn_ext.data.catalog import check_domains, get_benchmark, targets
    from semilearn_ext.plan import describe_plan

    if settings.dry_run:
        print(describe_plan(settings))
        return

    benchmark = get_benchmark(settings)
    check_domains(settings, benchmark)
    results = [train_one(settings, target) for target in targets(settings, benchmark)]
    report(results)


def train_one(settings: Settings, target: str) -> dict:
    from semilearn_ext import training

    group = training.join_processes(settings)
    outcome = training.run(with_values(settings, target_domain=target), group)
    if outcome.was_finished and group.is_main:
        print(f"{target}: finished before, not run again (--overwrite starts over)", file=sys.stderr)
    return outcome.result


def report(results: list[dict]) -> None:
    from semilearn_ext.engine import processes
    from semilearn_ext.report.summary import render

    if processes.from_environment().is_main:
        print(render(results))
    processes.leave()


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
