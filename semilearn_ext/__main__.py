"""``python -m semilearn_ext <command>``. Each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext import __version__
from semilearn_ext.errors import exit_code_of


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m semilearn_ext", description="Tools around train.py.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="algorithms, datasets and networks, a line each").set_defaults(call=list_all)
    bench = commands.add_parser("bench", help="measure what a part costs")
    parts = bench.add_subparsers(dest="part", required=True, metavar="PART")
    step = parts.add_parser("step", help="share of a step outside forward, backward and optimizer")
    step.add_argument("--c", type=Path, metavar="FILE", help="a config; default: FixMatch, ResNet-18, 64x64, CPU")
    step.add_argument("--steps", type=int, default=8, metavar="N", help="steps to run [8]")
    step.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings on top of the config")
    step.set_defaults(call=bench_step)
    data = commands.add_parser("data", help="look at a benchmark")
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser("show", help="draw a contact sheet: domains by views")
    show.add_argument("name", help="the benchmark's config, such as digits_mini for config/ssdg/digits_mini.yaml")
    show.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    show.set_defaults(call=data_show)
    return top


def data_show(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.sheet import draw
    from semilearn_ext.settings import settings_from

    draw(settings_from(dataset=arguments.name, flip=arguments.name != "digits_mini"), arguments.out)
    print(f"written: {arguments.out}")


def list_all(_: argparse.Namespace) -> None:
    from semilearn_ext.listing import render

    print(render())


def bench_step(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.step import main

    overrides = dict(word.split("=", 1) for word in arguments.set)
    print(main(arguments.c, overrides, arguments.steps))


def main() -> None:
    arguments = parser().parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
