"""``bench``: measure what a part costs."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = "measure what a part costs"


def add(bench: argparse.ArgumentParser) -> None:
    parts = bench.add_subparsers(dest="part", required=True, metavar="PART")
    step = parts.add_parser("step", help="share of a step outside forward, backward and optimizer")
    step.add_argument("--c", type=Path, metavar="FILE", help="a config; default: FixMatch, ResNet-18, 64x64, CPU")
    step.add_argument("--steps", type=int, default=8, metavar="N", help="steps to run [8]")
    step.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings on top of the config")
    step.set_defaults(call=run_step)
    parts.add_parser("loss", help="time and memory of the UPCSC losses").set_defaults(call=run_loss)
    data = parts.add_parser("data", help="images a second, against the plain PIL pipeline, on real PACS")
    data.add_argument("--root", type=Path, default=Path("data"), metavar="DIR", help="folder that holds pacs [data]")
    data.add_argument("--size", type=int, default=128, metavar="N", help="side of an image in pixels [128]")
    data.set_defaults(call=run_data)


def run_step(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.step import main

    overrides = dict(word.split("=", 1) for word in arguments.set)
    print(main(arguments.c, overrides, arguments.steps))


def run_loss(_: argparse.Namespace) -> None:
    from semilearn_ext.bench.loss import main

    print(main())


def run_data(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.data import main
    from semilearn_ext.data.inspect import find_tree

    print(main(find_tree("pacs", arguments.root).root, size=arguments.size))
