"""``predict``: classify images of one's own with a finished run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HELP = "classify images of your own with a finished run"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="the folder of a finished run")
    parser.add_argument("images", nargs="+", type=Path, metavar="IMAGE_OR_FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write a CSV instead of showing a table")
    parser.add_argument("--device", default="auto", choices=("auto", "cuda", "mps", "cpu"), help="[auto]")
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext import files
    from semilearn_ext.analysis.predict import Predictor, image_files

    images = image_files(arguments.images)
    predictor = Predictor.load(arguments.run, arguments.device)
    frame = predictor(images)
    if predictor.no_confidence:
        print(f"confident is left empty: {predictor.no_confidence}", file=sys.stderr)
    if arguments.out is None:
        shown = frame.astype({"confident": object}).fillna({"confident": ""})
        print(shown.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.4f}"))
        return
    files.write_text(arguments.out, frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))
    broken = int((frame["problem"] != "").sum())
    print(f"written: {arguments.out}, {len(frame)} images, {broken} of them broken")
