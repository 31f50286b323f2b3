"""Run every row of the paper's tables for one benchmark, and write the tables.

  ssdg reproduce pacs --dry_run                              show the plan: rows, runs, images and GPU hours
  ssdg reproduce pacs --data_dir data --gpus 0,1             train unfinished runs, then write records and tables
  ssdg reproduce pacs --data_dir data --launcher slurm --time 4:00:00 --gpus_per_node 1

This is a sweep: re-run the same command to continue, and run failed runs again with 'ssdg sweep retry'.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from semilearn_ext import files
from semilearn_ext.commands import sweep, tables
from semilearn_ext.commands.argument_types import add_trust, numbers, positive, words
from semilearn_ext.errors import printable
from semilearn_ext.registry import DATASETS
from semilearn_ext.runs.job import State
from semilearn_ext.settings import Settings
from semilearn_ext.settings.command_line import add_settings

HELP = "run all rows of the paper for one benchmark"
_ASSUMED = (
    "assumed for one GPU, not measured; finish some runs on the GPU and repeat the command to use their rate, or set "
    "--images_per_second"
)
_OWN = {"benchmark", "out", "images_per_second", "seeds", "labels", "methods", "trust"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "ssdg reproduce BENCHMARK [--dry_run] [--key value ...]"
    which = parser.add_argument_group("which runs")
    benchmarks = ", ".join(spec.name for spec in DATASETS if spec.domains)
    which.add_argument("benchmark", metavar="BENCHMARK", help=benchmarks)
    which.add_argument("--seeds", type=numbers, default=[1, 2, 3, 4, 5], metavar="1-5", help="seeds (default: 1-5)")
    which.add_argument(
        "--labels", type=numbers, default=[], metavar="10,5", help="labels per class (default: the paper's)"
    )
    which.add_argument(
        "--methods", type=words, default=[], metavar="A,B", help="only these rows, for example fixmatch,fixmatch_upcsc"
    )
    which.add_argument(
        "--images_per_second",
        type=positive,
        metavar="N",
        help="training speed, for the estimate of GPU hours (default: that of finished GPU runs, or an assumed value)",
    )
    which.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for records and tables (default: results/BENCHMARK)"
    )
    sweep.add_launcher(parser)
    add_trust(parser)
    add_settings(parser)
    parser.set_defaults(call=run)


def run(arguments: argparse.Namespace) -> None:
    from semilearn_ext.report import paper_runs

    dataset = DATASETS.get(arguments.benchmark, "benchmark")
    not_settings = {*_OWN, *sweep.LAUNCHER_OPTIONS}
    overrides = {name: value for name, value in vars(arguments).items() if name not in not_settings}
    chosen = ("dataset", "algorithm", "labels_per_class", "target_domain", "seed", "variant")
    sweep.check_not_given(overrides, chosen, "reproduce")
    experiments = paper_runs.paper_experiments(
        dataset.name, arguments.labels, arguments.seeds, overrides, arguments.methods
    )
    plan = sweep.plan_of(experiments)
    done = [job.folder for job in plan.jobs if job.status.state is State.DONE]
    if sweep.is_dry_run(arguments):
        first = next(iter(experiments.values()))
        rate, source = paper_runs.measured_rate(experiments, done) or (paper_runs.assumed_rate(first), _ASSUMED)
        if arguments.images_per_second:
            rate, source = arguments.images_per_second, "as given"
        counts = _counts(dataset.name, first)
        work = paper_runs.work_of(experiments, done, counts, rate)
        print(paper_runs.render_work(dataset.title, work, rate, source))
        return
    try:
        sweep.launch(arguments, plan)
    finally:
        make_tables(plan, arguments.out or Path("results", dataset.name))


def make_tables(plan: sweep.Plan, out: Path) -> None:
    """Add the finished runs to the records in ``out`` and write all tables from them."""
    from semilearn_ext.report.build import TABLES, build
    from semilearn_ext.report.collect import collect

    done = [folder for folder in (job.folder for job in plan.jobs) if sweep.Job.read(folder).status.state is State.DONE]
    if not done:
        return
    record = out / "records"
    collected = collect(done, record)
    report = build([record], TABLES, (), "last")
    for remark in [*(f"warning: {warning}" for warning in collected.warnings), *report.remarks()]:
        print(printable(remark), file=sys.stderr)
    texts = tables.render(report, out, tables.FORMATS, f"ssdg tables {record} --out {out}")
    for path, text in texts.items():
        files.write_text(path, text)
    print(f"Wrote {out / 'tables.md'} and {out / 'page.html'} from {len(done)} of {len(plan.jobs)} runs")


def _counts(dataset: str, settings: Settings) -> dict[str, int]:
    """The published number of images per domain or, for data that come with the package, the actual number."""
    from semilearn_ext.report import paper_runs

    if published := paper_runs.published_counts(dataset):
        return published
    from collections import Counter

    from semilearn_ext.data.experiment import load_images

    return dict(Counter(item.domain for item in load_images(settings).items))
