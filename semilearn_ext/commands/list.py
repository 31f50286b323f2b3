"""``list``: what there is, a line each."""

from __future__ import annotations

import argparse

HELP = "algorithms, plug-ins, datasets and networks, a line each"


def add(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(call=run)


def run(_: argparse.Namespace) -> None:
    from semilearn_ext.listing import render

    print(render())
