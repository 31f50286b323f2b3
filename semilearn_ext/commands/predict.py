"""Classify your own images with a finished run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext.commands.argument_types import add_trust
from semilearn_ext.errors import counted

HELP = "classify your own images with a finished run"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images", nargs="+", type=Path, metavar="IMAGE_OR_FOLDER", help="image files or folders of them"
    )
    parser.add_argument("--run", type=Path, required=True, metavar="DIR", help="folder of the finished run")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="write a CSV file instead of printing a table")
    parser.add_argument(
        "--device", default="auto", choices=("auto", "cuda", "mps", "cpu"), help="device (default: auto)"
    )
    add_trust(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext import files
    from semilearn_ext.analysis.predict import Predictor, image_files
    from semilearn_ext.report.writers import csv_text

    images = image_files(arguments.images)
    predictor = Predictor.load(arguments.run, arguments.device)
    frame = predictor(images)
    if predictor.no_confidence:
        print(f"The column 'confident' is empty: {predictor.no_confidence}", file=sys.stderr)
    if arguments.out is None:
        table = frame.astype({"confident": object}).fillna({"confident": ""})
        print(table.to_string(index=False, na_rep="", float_format=lambda value: f"{value:.4f}"))
        return
    files.write_text(arguments.out, csv_text(frame, "%.6g"))
    unreadable = int((frame["problem"] != "").sum())
    print(f"Wrote {arguments.out}: {counted(len(frame), 'image')}, {unreadable} of which could not be read")
