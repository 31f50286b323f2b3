"""Download, check, show and split datasets."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

from semilearn_ext.commands.argument_types import MAX_SEED, number_between, positive, real_between, words
from semilearn_ext.errors import UserError, counted

HELP = "download, check, show and split datasets"


def add(data: argparse.ArgumentParser) -> None:
    actions = data.add_subparsers(dest="action", required=True, metavar="ACTION")
    prepare = actions.add_parser("prepare", help="download a dataset, or show how to download it by hand")
    check = actions.add_parser("check", help="compare image counts with the published ones and decode every image")
    show = actions.add_parser("show", help="draw a contact sheet of all domains and views")
    split = actions.add_parser("split", help="write label splits for every target and seed")
    for action, call in ((prepare, run_prepare), (check, run_check), (show, run_show), (split, run_split)):
        action.add_argument("name", help="name of the dataset (see: ssdg list)")
        action.add_argument(
            "--data_dir", type=Path, default=Path("data"), metavar="DIR", help="folder of the datasets (default: data)"
        )
        action.add_argument(
            "--extend", type=words, default=[], metavar="A,B", help="Python files with your own datasets"
        )
        action.set_defaults(call=partial(run, call))
    show.add_argument("--out", type=Path, required=True, metavar="FILE.png", help="image file to write")
    show.add_argument(
        "--size",
        type=number_between(8, 4096),
        metavar="N",
        help="side of an image in pixels (default: 96, or 224 with --style)",
    )
    show.add_argument("--cache_dir", type=Path, metavar="DIR", help="folder for decoded images")
    show.add_argument("--style", action="store_true", help="show StyleMatch's style view: content, style and result")
    show.add_argument(
        "--alpha",
        type=real_between(0, 1),
        default=0.5,
        metavar="X",
        help="share of the style, with --style (default: 0.5)",
    )
    show.add_argument("--adain_dir", metavar="DIR", help="folder with decoder.pth and vgg_normalised.pth, for --style")
    split.add_argument(
        "--labels",
        type=positive,
        default=10,
        metavar="N",
        help="labelled images per class and source domain (default: 10)",
    )
    split.add_argument(
        "--seeds",
        type=number_between(0, MAX_SEED),
        nargs="+",
        default=[1, 2, 3, 4, 5],
        metavar="S",
        help="seeds (default: 1 2 3 4 5)",
    )
    split.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write the splits to")
    split.add_argument(
        "--few_labels",
        choices=("auto", "error", "take_all"),
        default="auto",
        help="for a class with fewer training images than --labels: error, or take_all to label all of them "
        "(default: auto, the choice of the released code for the dataset)",
    )


def run(call: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> None:
    """Load the extensions, then run the requested action."""
    from semilearn_ext.settings.extensions import load_extension

    for file in arguments.extend:
        load_extension(file, "--extend")
    call(arguments)


def run_prepare(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.hub import prepare

    print(prepare(arguments.name, arguments.data_dir))


def run_check(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.checks import check

    report, problems = check(arguments.name, arguments.data_dir)
    print("\n".join([report, *problems]))
    if problems:
        raise UserError(f"{arguments.name}: {counted(len(problems), 'problem')} found (listed above)")


def run_show(arguments: argparse.Namespace) -> None:
    from semilearn_ext.registry import DATASETS
    from semilearn_ext.settings import settings_from

    spec = DATASETS.get(arguments.name, "dataset")
    if arguments.out.suffix.lower() != ".png":
        raise UserError(f"--out: {arguments.out}: expected a PNG file, such as NAME.png")
    size = spec.image_size or arguments.size or (224 if arguments.style else 96)
    values = {"dataset": spec.name, "data_dir": arguments.data_dir, "img_size": size, "flip": spec.flip}
    if arguments.cache_dir:
        values["cache_dir"] = arguments.cache_dir
    if arguments.style:
        from semilearn_ext.algorithms import style_sheet

        values |= {"adain_dir": arguments.adain_dir} if arguments.adain_dir else {}
        style_sheet.draw(settings_from(**values), arguments.alpha, arguments.out)
    else:
        from semilearn_ext.data.contact_sheet import draw

        draw(settings_from(**values), arguments.out)
    print(f"Wrote {arguments.out}")


def run_split(arguments: argparse.Namespace) -> None:
    from semilearn_ext.data.checks import write_splits

    paths = write_splits(
        arguments.name, arguments.data_dir, arguments.labels, arguments.seeds, arguments.out, arguments.few_labels
    )
    print(f"Wrote {len(paths)} label splits to {arguments.out}, for example {paths[0].name}")
