"""Check this machine: GPU, memory, precision, one step of every method compared with the CPU's, and throughput."""

from __future__ import annotations

import argparse

from semilearn_ext.commands.argument_types import pair, words
from semilearn_ext.errors import UserError

HELP = "check this machine: GPU, memory, methods, speed"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "mps", "cpu"),
        default="auto",
        help="the device to check (default: auto, the one that training would take)",
    )
    parser.add_argument(
        "--methods",
        type=words,
        metavar="A,B",
        help="methods that take a step (default: all of them; none: no step)",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="settings of these steps, such as adain_dir=DIR for stylematch",
    )
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.doctor import NOTE, PROBLEM, examine
    from semilearn_ext.registry import methods

    chosen = [] if arguments.methods == ["none"] else arguments.methods or methods()
    statuses = []
    for finding in examine(arguments.device, chosen, dict(arguments.set)):
        print(finding.line(), flush=True)
        statuses.append(finding.status)
    problems = statuses.count(PROBLEM)
    if problems:
        raise UserError(f"{problems} of {len(statuses)} checks found a problem; the lines above say how to mend each")
    print(f"all {len(statuses)} checks passed" + (f", {statuses.count(NOTE)} with a note" if NOTE in statuses else ""))
