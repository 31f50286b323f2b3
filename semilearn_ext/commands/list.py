"""List the available algorithms, plug-ins, datasets and networks, or the packaged config files."""

from __future__ import annotations

import argparse
from pathlib import Path

from semilearn_ext.commands.argument_types import words
from semilearn_ext.errors import UserError
from semilearn_ext.settings.config_files import config_names

HELP = "list algorithms, plug-ins, datasets, networks and configs"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("configs",), help="list the packaged config files instead")
    parser.add_argument(
        "--extend", type=words, default=[], metavar="A,B", help="Python files with extensions to include"
    )
    parser.add_argument(
        "--markdown",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="update the tables in these Markdown files instead",
    )
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext import files
    from semilearn_ext.listing import render, update
    from semilearn_ext.settings.extensions import load_extension

    if arguments.what == "configs":
        print("\n".join(config_names()))
        return
    for file in arguments.extend:
        load_extension(file, "--extend")
    if arguments.markdown:
        for path in arguments.markdown:
            if not path.is_file():
                raise UserError(f"--markdown: {path}: no such file")
            files.write_text(path, update(path.read_text(encoding="utf-8"), str(path)))
            print(f"Wrote {path}")
        return
    print(f"{render()}\n\nconfigs\n  {len(config_names())} packaged files for --c (list them with: ssdg list configs)")
