"""``data``: fetch, check, show and split benchmarks."""

from __future__ import annotations

import argparse
from pathlib import Path

from semilearn_ext.errors import UserError

HELP = "fetch, check, show and split benchmarks"


def add(data: argparse.ArgumentParser) -> None:
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    prepare = actions.add_parser("prepare", help="fetch PACS or OfficeHome; for others, say what to fetch by hand")
    check = actions.add_parser("check", help="count images against the published numbers and decode every one")
    show = actions.add_parser("show", help="draw a contact sheet: domains by views")
    split = actions.add_parser("split", help="write label splits for every target and seed")
    for action, call in ((prepare, run_prepare), (check, run_check), (show, run_show), (split, run_split)):
        action.add_argument("name", help="the benchmark: pacs, office_home, digits_dg, mini_domainnet, folder, …")
        action.add_argument("--root", type=Path, default=Path("data"), metavar="DIR", help="where it lies [data]")
        action.set_defaults(call=call)
    show.add_argument("--out", type=Path, required=True, metavar="FILE.png")
    show.add_argument("--size", type=int, metavar="N", help="side of an image in pixels [96; --style: the paper's 224]")
    show.add_argument("--cache_dir", type=Path, metavar="DIR", help="where decoded images are kept")
    show.add_argument("--style", action="store_true", help="StyleMatch's style view: content, style and result")
    show.add_argument("--alpha", type=float, default=0.5, metavar="X", help="with --style: share of the style [0.5]")
    show.add_argument("--adain_dir", metavar="DIR", help="with --style: folder with decoder.pth and vgg_normalised.pth")
    split.add_argument("--labels", type=int, default=10, metavar="N", help="labelled images a class and domain [10]")
    split.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], metavar="S", help="seeds [1 2 3 4 5]")
    split.add_argument("--out", type=Path, required=True, metavar="DIR")


def run_prepare(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.hub import prepare

    print(prepare(arguments.name, arguments.root))


def run_check(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.inspect import check

    report, problems = check(arguments.name, arguments.root)
    print("\n".join([report, *problems]))
    if problems:
        raise UserError(f"{arguments.name}: {len(problems)} problems, listed above")


def run_show(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.sheet import draw
    from semilearn_ext.settings import settings_from

    digits = arguments.name.startswith("digits")
    size = arguments.size or (224 if arguments.style else 96)
    values = {"dataset": arguments.name, "data_dir": arguments.root, "img_size": size, "flip": not digits}
    if arguments.name == "digits_mini":
        values["img_size"] = 32
    if arguments.cache_dir:
        values["cache_dir"] = arguments.cache_dir
    if arguments.style:
        from semilearn_ext.algorithms import style_sheet

        values |= {"adain_dir": arguments.adain_dir} if arguments.adain_dir else {}
        style_sheet.draw(settings_from(**values), arguments.alpha, arguments.out)
    else:
        draw(settings_from(**values), arguments.out)
    print(f"written: {arguments.out}")


def run_split(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.inspect import write_splits

    written = write_splits(arguments.name, arguments.root, arguments.labels, arguments.seeds, arguments.out)
    print(f"written: {len(written)} files in {arguments.out}, the first is {written[0].name}")
