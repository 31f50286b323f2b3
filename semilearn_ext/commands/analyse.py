"""``analyse``: the paper's figures and tables from finished runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from semilearn_ext.errors import UserError
from semilearn_ext.settings.command_line import add_settings

HELP = "the paper's figures from finished runs: observation, curves, tsne, landscape"


def add(analyse: argparse.ArgumentParser) -> None:
    kinds = analyse.add_subparsers(dest="kind", required=True, metavar="KIND")
    _add_observation(kinds)
    curves = kinds.add_parser("curves", help="accuracy on all unlabelled source images by epoch")
    curves.add_argument("runs", nargs="+", type=Path, metavar="RUNS", help="finished runs, or folders of them")
    curves.set_defaults(call=run_curves)
    tsne = kinds.add_parser("tsne", help="t-SNE of the features, a row a method")
    tsne.add_argument("--limit", type=_at_least(10), default=1000, metavar="N", help="most images of a set [1000]")
    tsne.set_defaults(call=run_tsne)
    landscape = kinds.add_parser("landscape", help="source loss along the Hessian's first two eigenvectors")
    landscape.add_argument("--images", type=_at_least(0), default=256, metavar="N", help="source images; 0: all [256]")
    landscape.add_argument("--points", type=_odd, default=21, metavar="N", help="grid points along each direction [21]")
    landscape.add_argument(
        "--span", type=float, default=0, metavar="X", help="longest step along each direction; 0: by the curvature [0]"
    )
    landscape.add_argument("--float32", action="store_true", help="eigenvectors in float32: four times faster on a CPU")
    landscape.set_defaults(call=run_landscape)
    for kind in (tsne, landscape):
        kind.add_argument(
            "--run", dest="runs", action="append", required=True, type=Path, metavar="DIR", help="a run; once a method"
        )
        kind.add_argument("--data_dir", type=Path, metavar="DIR", help="where the data are, if not where they were")
        kind.add_argument("--device", default="auto", choices=("auto", "cuda", "mps", "cpu"), help="[auto]")
    for kind in (curves, tsne, landscape):
        _add_out(kind)


def _add_out(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("results/figures"), metavar="DIR", help="[results/figures]")


def _add_observation(kinds: Any) -> None:
    parser = kinds.add_parser(
        "observation",
        help="how many unlabelled images are unconfident, and how many candidate classes they have",
        usage="python -m semilearn_ext analyse observation (--c FILE [--key value ...] | RUNS ...) [--out DIR]",
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUNS", help="finished runs of one method")
    parser.add_argument("--c", type=Path, metavar="FILE", help="train this config for three epochs and every target")
    _add_out(parser)
    add_settings(parser)
    parser.set_defaults(call=run_observation)


def _at_least(smallest: int) -> Any:
    def number(word: str) -> int:
        if int(word) < smallest:
            raise argparse.ArgumentTypeError(f"must be at least {smallest}")
        return int(word)

    return number


def _odd(word: str) -> int:
    if int(word) < 3 or int(word) % 2 == 0:
        raise argparse.ArgumentTypeError("must be odd and at least 3: the middle point is the trained network")
    return int(word)


def run_observation(arguments: argparse.Namespace) -> None:
    given = vars(arguments)
    ours = {name: given.pop(name, None) for name in ("runs", "c", "out", "call", "command", "kind")}
    if bool(ours["runs"]) == bool(ours["c"]):
        raise UserError("analyse observation: give either --c FILE, which is trained, or finished runs")
    only_for_training = sorted(given.keys() - {"device", "data_dir"})
    if ours["runs"] and only_for_training:
        raise UserError(f"analyse observation: --{only_for_training[0]} goes with --c FILE, not with finished runs")
    from semilearn_ext.analysis import observation
    from semilearn_ext.analysis.finished import find_runs
    from semilearn_ext.settings import load_settings

    runs = find_runs(ours["runs"]) if ours["runs"] else observation.train_runs(load_settings(ours["c"], given))
    data_dir = Path(given["data_dir"]) if "data_dir" in given else None
    print(observation.main(runs, ours["out"], given.get("device", "auto"), data_dir))


def run_curves(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import curves
    from semilearn_ext.analysis.finished import find_runs

    print(curves.main(find_runs(arguments.runs), arguments.out))


def run_tsne(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import tsne
    from semilearn_ext.analysis.finished import open_run

    options = tsne.Options(arguments.limit)
    runs = [open_run(path) for path in arguments.runs]
    print(tsne.main(runs, arguments.out, options, arguments.device, arguments.data_dir))


def run_landscape(arguments: argparse.Namespace) -> None:
    from semilearn_ext.analysis import landscape
    from semilearn_ext.analysis.finished import open_run

    options = landscape.Options(arguments.images, arguments.points, arguments.span, arguments.float32)
    runs = [open_run(path) for path in arguments.runs]
    print(landscape.main(runs, arguments.out, options, arguments.device, arguments.data_dir))
