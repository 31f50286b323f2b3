"""Measure the time and memory of a component."""

from __future__ import annotations

import argparse
from pathlib import Path

from semilearn_ext.commands.argument_types import add_trust, pair, positive
from semilearn_ext.settings.config_files import find_config

HELP = "measure the time and memory of a component"


def add(bench: argparse.ArgumentParser) -> None:
    parts = bench.add_subparsers(dest="part", required=True, metavar="PART")
    step = parts.add_parser("step", help="overhead of a training step beyond forward, backward and optimizer")
    epoch = parts.add_parser("epoch", help="shares of training, evaluation and checkpoints in a whole run")
    for part, default in ((step, "FixMatch, ResNet-18, 64x64, CPU"), (epoch, "FixMatch on digits_mini")):
        part.add_argument("--c", type=find_config, metavar="FILE", help=f"config file (default: {default})")
        part.add_argument(
            "--steps", type=positive, default=8, metavar="N", help="number of steps after a warm-up step (default: 8)"
        )
        part.add_argument(
            "--floor", type=positive, metavar="N", help="fail if training is slower than N steps per second"
        )
        part.add_argument(
            "--set", nargs="+", type=pair, default=[], metavar="KEY=VALUE", help="settings that override the config"
        )
        add_trust(part)
    step.set_defaults(call=run_step)
    epoch.set_defaults(call=run_epoch)
    parts.add_parser("loss", help="time and memory of the UPCSC losses").set_defaults(call=run_loss)
    data = parts.add_parser("data", help="images per second, compared with a plain Pillow pipeline, on PACS")
    data.add_argument(
        "--data_dir", type=Path, default=Path("data"), metavar="DIR", help="folder that contains pacs (default: data)"
    )
    data.add_argument("--size", type=positive, default=128, metavar="N", help="image size in pixels (default: 128)")
    data.add_argument(
        "--device",
        choices=("auto", "cuda", "mps", "cpu"),
        default="auto",
        help="device for the device kernels (default: auto, the device that training would use)",
    )
    data.set_defaults(call=run_data)


def run_step(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.budget import check_floor
    from semilearn_ext.bench.step import main

    report, rate = main(arguments.c, dict(arguments.set), arguments.steps)
    print(report)
    check_floor(rate, arguments.floor)


def run_epoch(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.budget import check_floor
    from semilearn_ext.bench.epoch import main

    report, rate = main(arguments.c, dict(arguments.set), arguments.steps)
    print(report)
    check_floor(rate, arguments.floor)


def run_loss(_: argparse.Namespace) -> None:
    from semilearn_ext.bench.loss import main

    print(main())


def run_data(arguments: argparse.Namespace) -> None:
    from semilearn_ext.bench.data import main
    from semilearn_ext.data.checks import image_tree_spec
    from semilearn_ext.engine.device import choose_device
    from semilearn_ext.settings import settings_from

    device = choose_device(settings_from(device=arguments.device))
    print(main(image_tree_spec("pacs").tree(arguments.data_dir).root, size=arguments.size, device=device))
