"""``python -m semilearn_ext <command>``. Each command imports what it needs when it is called."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext import __version__
from semilearn_ext.errors import UserError, exit_code_of


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m semilearn_ext", description="Tools around train.py.")
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="algorithms, datasets and networks, a line each").set_defaults(call=list_all)
    _add_data(commands.add_parser("data", help="fetch, check, show and split benchmarks"))
    _add_bench(commands.add_parser("bench", help="measure what a part costs"))
    return top


def _add_data(data: argparse.ArgumentParser) -> None:
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    prepare = actions.add_parser("prepare", help="fetch PACS or OfficeHome; for others, say what to fetch by hand")
    check = actions.add_parser("check", help="count images against the published numbers and decode every one")
    show = actions.add_parser("show", help="draw a contact sheet: domains by views")
    split = actions.add_parser("split", help="write label splits for every target and seed")
    for action, call in ((prepare, data_prepare), (check, data_check), (show, data_show), (split, data_split)):
        action.add_argument("name", help="the benchmark: pacs, office_home, digits_dg, mini_domainnet, folder, …")
        action.add_argument("--root", type=Path, default=Path("data"), metavar="DIR", help="where it lies [data]")
        action.set_defaults(call=call)
    show.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    show.add_argument("--size", type=int, default=96, metavar="N", help="side of an image in pixels [96]")
    show.add_argument("--cache_dir", type=Path, metavar="DIR", help="where decoded images are kept")
    split.add_argument("--labels", type=int, default=10, metavar="N", help="labelled images a class and domain [10]")
    split.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], metavar="S", help="seeds [1 2 3 4 5]")
    split.add_argument("--out", type=Path, required=True, metavar="DIR")


def _add_bench(bench: argparse.ArgumentParser) -> None:
    parts = bench.add_subparsers(dest="part", required=True, metavar="PART")
    step = parts.add_parser("step", help="share of a step outside forward, backward and optimizer")
    step.add_argument("--c", type=Path, metavar="FILE", help="a config; default: FixMatch, ResNet-18, 64x64, CPU")
    step.add_argument("--steps", type=int, default=8, metavar="N", help="steps to run [8]")
    step.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings on top of the config")
    step.set_defaults(call=bench_step)
    parts.add_parser("loss", help="time and memory of the UPCSC losses").set_defaults(call=bench_loss)
    data = parts.add_parser("data", help="images a second, against the plain PIL pipeline, on real PACS")
    data.add_argument("--root", type=Path, default=Path("data"), metavar="DIR", help="folder that holds pacs [data]")
    data.add_argument("--size", type=int, default=128, metavar="N", help="side of an image in pixels [128]")
    data.set_defaults(call=bench_data)


def list_all(_: argparse.Namespace) -> None:
    from semilearn_ext.listing import render

    print(render())


def data_prepare(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.hub import prepare

    print(prepare(arguments.name, arguments.root))


def data_check(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.inspect import check

    report, problems = check(arguments.name, arguments.root)
    print("\n".join([report, *problems]))
    if problems:
        raise UserError(f"{arguments.name}: {len(problems)} problems, listed above")


def data_show(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.sheet import draw
    from semilearn_ext.settings import settings_from

    digits = arguments.name.startswith("digits")
    values = {"dataset": arguments.name, "data_dir": arguments.root, "img_size": arguments.size, "flip": not digits}
    if arguments.name == "digits_mini":
        values["img_size"] = 32
    if arguments.cache_dir:
        values["cache_dir"] = arguments.cache_dir
    draw(settings_from(**values), arguments.out)
    print(f"written: {arguments.out}")


def data_split(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.inspect import write_splits

    written = write_splits(arguments.name, arguments.root, arguments.labels, arguments.seeds, arguments.out)
    print(f"written: {len(written)} files in {arguments.out}, the first is {written[0].name}")


def bench_step(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.step import main

    overrides = dict(word.split("=", 1) for word in arguments.set)
    print(main(arguments.c, overrides, arguments.steps))


def bench_loss(_: argparse.Namespace) -> None:
    from semilearn_ext.bench.loss import main

    print(main())


def bench_data(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.data import main
    from semilearn_ext.data.inspect import find_tree

    print(main(find_tree("pacs", arguments.root).root, size=arguments.size))


def main() -> None:
    arguments = parser().parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
