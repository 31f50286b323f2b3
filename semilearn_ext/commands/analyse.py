"""Draw the paper's figures from finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from semilearn_ext.commands.argument_types import add_trust, number_between, real_between, words
from semilearn_ext.errors import UserError
from semilearn_ext.settings.command_line import add_settings
from semilearn_ext.settings.config_files import find_config

HELP = "draw the paper's figures from finished runs"


def add(analyse: argparse.ArgumentParser) -> None:
    figures = analyse.add_subparsers(dest="figure", required=True, metavar="FIGURE")
    _add_observation(figures)
    _add_curves(figures)
    _add_gains(figures)
    _add_details(figures)
    tsne = figures.add_parser("tsne", help="t-SNE of the features, one row per method")
    tsne.add_argument(
        "--limit",
        type=number_between(10, 10**6),
        default=1000,
        metavar="N",
        help="maximum number of images per set (default: 1000)",
    )
    tsne.set_defaults(call=run_tsne)
    landscape = figures.add_parser("landscape", help="source loss along the first two eigenvectors of the Hessian")
    landscape.add_argument(
        "--images",
        type=number_between(0, 10**7),
        default=256,
        metavar="N",
        help="number of source images, or 0 for all (default: 256)",
    )
    landscape.add_argument(
        "--points", type=_odd, default=21, metavar="N", help="grid points along each direction (default: 21)"
    )
    landscape.add_argument(
        "--span",
        type=real_between(0, 1e6),
        default=0,
        metavar="X",
        help="length of the longest step along each direction, or 0 to choose it from the curvature (default: 0)",
    )
    landscape.add_argument(
        "--float32", action="store_true", help="compute the eigenvectors in float32, four times as fast on a CPU"
    )
    landscape.set_defaults(call=run_landscape)
    for parser in (tsne, landscape):
        parser.add_argument(
            "--run",
            dest="runs",
            action="append",
            required=True,
            type=Path,
            metavar="DIR",
            help="path of a finished run; repeat the option once per method",
        )
        parser.add_argument(
            "--data_dir", type=Path, metavar="DIR", help="folder of the data (default: the data_dir of the run)"
        )
        parser.add_argument(
            "--device", default="auto", choices=("auto", "cuda", "mps", "cpu"), help="device (default: auto)"
        )
        _add_out(parser)


def _add_out(parser: argparse.ArgumentParser) -> None:
    add_trust(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("figures"),
        metavar="DIR",
        help="output folder (default: figures)",
    )


def _add_curves(figures: Any) -> None:
    parser = figures.add_parser("curves", help="accuracy on unlabelled source images, or another metric, over epochs")
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUNS", help="finished runs, or folders that contain runs or records"
    )
    parser.add_argument(
        "--metric",
        default="unlabeled/top1",
        metavar="NAME",
        help="any number recorded at evaluations, for example unlabeled/keep_rate (default: unlabeled/top1)",
    )
    parser.add_argument(
        "--methods",
        type=words,
        default=[],
        metavar="A,B",
        help="methods to draw, by name (default: at most six, each base with UPCSC first)",
    )
    _add_out(parser)
    parser.set_defaults(call=run_curves)


def _add_gains(figures: Any) -> None:
    parser = figures.add_parser("gains", help="gain of a plug-in over each base algorithm, with confidence intervals")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="folders that contain runs or records")
    parser.add_argument("--plugin", default="upcsc", metavar="NAME", help="the plug-in (default: upcsc)")
    _add_out(parser)
    parser.set_defaults(call=run_gains)


def _add_details(figures: Any) -> None:
    """Figures from the records of the last evaluation: ``confusion`` and ``reliability``."""
    helps = {
        "confusion": "confusion matrix of the last evaluation",
        "reliability": "accuracy by confidence and expected calibration error of the last evaluation",
    }
    for name, text in helps.items():
        parser = figures.add_parser(name, help=text)
        parser.add_argument(
            "runs",
            nargs="+",
            type=Path,
            metavar="RUNS",
            help="finished runs of one or two methods on one target, or folders that contain them; seeds are averaged",
        )
        parser.add_argument(
            "--images",
            default="target",
            choices=("target", "source_val", "unlabeled"),
            help="images of the target domain, held-out source images, or unlabelled source images (default: target)",
        )
        _add_out(parser)
        parser.set_defaults(call=run_details)


def _add_observation(figures: Any) -> None:
    parser = figures.add_parser(
        "observation",
        help="share of unconfident unlabelled images, and their number of candidate classes",
        usage="ssdg analyse observation (--c FILE [--key value ...] | RUNS ...) [--out DIR]",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUNS", help="finished runs of one method")
    parser.add_argument(
        "--c", type=find_config, metavar="FILE", help="config to train for three epochs, one run per target"
    )
    _add_out(parser)
    add_settings(parser)
    parser.set_defaults(call=run_observation)


def _odd(text: str) -> int:
    number = number_between(3, 1001)(text)
    if number % 2 == 0:
        raise argparse.ArgumentTypeError("must be odd, so that the middle point is the trained network")
    return number


def run_observation(arguments: argparse.Namespace) -> None:
    settings = vars(arguments)
    own = {name: settings.pop(name, None) for name in ("runs", "c", "out", "call", "command", "figure")}
    if bool(own["runs"]) == bool(own["c"]):
        raise UserError("analyse observation: pass either --c FILE to train, or finished runs")
    only_for_training = sorted(settings.keys() - {"device", "data_dir"})
    if own["runs"] and only_for_training:
        raise UserError(f"analyse observation: --{only_for_training[0]} needs --c FILE; finished runs are not trained")
    from semilearn_ext.analysis import observation
    from semilearn_ext.analysis.load_run import load_runs
    from semilearn_ext.settings import load_settings

    runs = load_runs(own["runs"]) if own["runs"] else observation.train_runs(load_settings(own["c"], settings))
    data_dir = Path(settings["data_dir"]) if "data_dir" in settings else None
    print(observation.main(runs, own["out"], settings.get("device", "auto"), data_dir))


def run_curves(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import curves
    from semilearn_ext.report.metrics import Metric

    print(curves.main(arguments.runs, arguments.out, Metric(arguments.metric), arguments.methods))


def run_gains(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import gains

    print(gains.main(arguments.runs, arguments.out, arguments.plugin))


def run_details(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import confusion, reliability
    from semilearn_ext.analysis.load_run import load_runs

    figure = {"confusion": confusion, "reliability": reliability}[arguments.figure]
    print(figure.main(load_runs(arguments.runs), arguments.out, arguments.images))


def run_tsne(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import tsne
    from semilearn_ext.analysis.load_run import load_run

    options = tsne.Options(arguments.limit)
    runs = [load_run(path) for path in arguments.runs]
    print(tsne.main(runs, arguments.out, options, arguments.device, arguments.data_dir))


def run_landscape(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import landscape
    from semilearn_ext.analysis.load_run import load_run

    options = landscape.Options(arguments.images, arguments.points, arguments.span, arguments.float32)
    runs = [load_run(path) for path in arguments.runs]
    print(landscape.main(runs, arguments.out, options, arguments.device, arguments.data_dir))
