"""Check this machine: GPU, memory, precision, one step of every method compared with the CPU, and throughput."""

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
        help="device to check (default: auto, the device that training would use)",
    )
    parser.add_argument(
        "--methods",
        type=words,
        metavar="A,B",
        help="methods to check with one step each, or none (default: all methods)",
    )
    parser.add_argument(
        "--set",
        nargs="+",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="settings for these steps, such as adain_dir=DIR for stylematch",
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
        raise UserError(f"{problems} of {len(statuses)} checks found a problem; see the remedies above")
    print(f"all {len(statuses)} checks passed" + (f", {statuses.count(NOTE)} with a note" if NOTE in statuses else ""))
