"""The runs of the paper's tables for one benchmark, and estimates of how long they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from semilearn_ext import registry
from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.report import paper_numbers
from semilearn_ext.report.methods import MethodId
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.runs.sweep import Grid, experiments
from semilearn_ext.settings import Settings
from semilearn_ext.settings.config_files import config_dir
from semilearn_ext.settings.domains import sources
from semilearn_ext.settings.load import read_yaml, resolve

ASSUMED_RATE, ASSUMED_SIZE, MAX_SPEEDUP = 2800.0, 224, 2
"""Training images (labelled and unlabelled) per second of FixMatch at 224 pixels on one GPU. This is assumed and not
measured: a current GPU should take about 34 ms for FixMatch's step of 96 images with a ResNet-18 in bfloat16. Smaller
images are assumed to be faster in proportion to their pixels, but at most twice as fast, because kernel launches limit
small steps."""
PASSES = {
    "erm": (48, 96),
    "meanteacher": (96, 48),
    "freematch": (144, 0),
    "fixmatch": (144, 96),
    "stylematch": (240, 96),
}
"""Images that pass through the network in one step of the paper's settings, with and without gradient."""
VIEWS = {"fixmatch": 2, "stylematch": 3}
"""Views of 48 unlabelled images that the benchmark's step passes through the network once more for UPCSC."""
PASS_WITH_GRADIENT, STYLE_VIEW = 3, 13
"""The cost of a pass with gradient, and of a style view (AdaIN's encoder and decoder, by multiplications), relative to
a pass without gradient. StyleMatch computes 96 style views per step."""
HELD_OUT = 0.1
"""The share of validation images, which is subtracted from the published number of images."""


def rows_of(dataset: str) -> list[tuple[int, MethodId]]:
    """Label count and method of every row of the paper; for other benchmarks, those of PACS with their label count."""
    if dataset in paper_numbers.dataset_order():
        return paper_numbers.rows(dataset)
    file = config_dir() / f"{dataset}.yaml"
    if not file.is_file():
        raise UserError(f"reproduce: no config for {dataset!r}; list the benchmarks with: ssdg list")
    labels = resolve(read_yaml(file)).labels_per_class
    return [(labels, method) for count, method in paper_numbers.rows("pacs") if count == 10]


def config_of(method: MethodId, dataset: str) -> Path:
    """The packaged config of a row: that of the method, or that of the benchmark with the step of the paper."""
    algorithm = "_".join((method.base, *method.plugins))
    own = [f"ablation/{algorithm}_{method.variant}_{dataset}.yaml"] if method.variant else []
    reference = [f"{dataset}_reference.yaml"] if "reference" in registry.steps_of(method.base) else []
    shared = [] if method.variant else [f"{algorithm}_{dataset}.yaml", f"{method.base}_{dataset}.yaml", *reference]
    names = [*own, *shared, *([] if method.variant else [f"{dataset}.yaml"])]
    config = next((config_dir() / name for name in names if (config_dir() / name).is_file()), None)
    if config is None:
        raise UserError(f"reproduce: no config for {method.name} on {dataset}")
    return config


def paper_experiments(
    dataset: str,
    labels: Sequence[int],
    seeds: Sequence[int],
    overrides: Mapping[str, Any],
    methods: Sequence[str] = (),
) -> dict[Path, Settings]:
    """All runs of the paper's rows, by folder: more labels first, the first seed of all methods before the second."""
    rows = [(count, method) for count, method in rows_of(dataset) if not labels or count in labels]
    if not rows:
        counts = ", ".join(map(str, dict.fromkeys(count for count, _ in rows_of(dataset))))
        raise UserError(
            f"--labels: the paper has no row for {dataset} with this number of labels per class (known: {counts})"
        )
    known = {method.name for _, method in rows}
    for name in methods:
        if name not in known:
            raise UserError(f"--methods: the paper has no row {name!r} for {dataset}{did_you_mean(name, known)}")
    rows = [(count, method) for count, method in rows if not methods or method.name in methods]
    runs: dict[Path, Settings] = {}
    for count, method in rows:
        algorithm = "_".join((method.base, *method.plugins))
        config = config_of(method, dataset)
        runs |= experiments(Grid([config], overrides, [algorithm], ["all"], list(seeds), [count]))
    return dict(sorted(runs.items(), key=lambda item: (-item[1].labels_per_class, item[1].seed)))


class Work(NamedTuple):
    """The runs of one row."""

    labels: int
    title: str
    runs: int
    done: int
    images: int
    """Labelled and unlabelled training images of all its runs, counted once per step."""
    seconds: float
    """Estimated time of the unfinished runs."""


def images_of(settings: Settings, counts: Mapping[str, int]) -> int:
    """Number of training images of a run, computed from the published number of images per domain."""
    per_step = settings.batch_size * (1 + settings.uratio)
    domains = sources(settings, settings.target_domain)
    smallest = min((1 - HELD_OUT) * counts[domain] for domain in domains)
    steps = settings.num_train_iter or settings.epoch * int(
        smallest // (settings.batch_size * settings.uratio / len(domains))
    )
    return steps * per_step


def cost_of(settings: Settings) -> float:
    """The cost of a step, relative to that of FixMatch in the benchmark's step."""
    with_gradient, without = PASSES.get(settings.base, PASSES["fixmatch"])
    plugins, is_reference = set(settings.plugins), settings.step == "reference"
    if is_reference and plugins & {"upc", "sc", "upcsc"}:
        with_gradient += 48 * VIEWS[settings.base]
    if is_reference and "fbcsa" in plugins:
        with_gradient, without = with_gradient + 96, without - 96
    style = 96 * STYLE_VIEW if settings.base == "stylematch" else 0
    weighted, of_fixmatch = (PASS_WITH_GRADIENT * a + b for a, b in ((with_gradient, without), PASSES["fixmatch"]))
    return (weighted + style) / of_fixmatch


def assumed_rate(settings: Settings) -> float:
    return ASSUMED_RATE * min(MAX_SPEEDUP, (ASSUMED_SIZE / settings.img_size) ** 2)


def work_of(runs: Mapping[Path, Settings], done: Iterable[Path], counts: Mapping[str, int], rate: float) -> list[Work]:
    """One entry per label count and method, in the order of the runs. ``rate``: images per second of FixMatch."""
    finished = set(done)
    groups: dict[tuple[int, MethodId], list[Path]] = {}
    for path, settings in runs.items():
        method = MethodId(settings.base, settings.plugins, settings.variant)
        groups.setdefault((settings.labels_per_class, method), []).append(path)
    work = []
    for (labels, method), paths in groups.items():
        images = {path: images_of(runs[path], counts) for path in paths}
        remaining = sum(count * cost_of(runs[path]) for path, count in images.items() if path not in finished)
        count = sum(path in finished for path in paths)
        work.append(Work(labels, method.title, len(paths), count, sum(images.values()), remaining / rate))
    return work


def published_counts(dataset: str) -> dict[str, int]:
    """Published number of images per domain; empty for data that are not published as files."""
    return dict(getattr(registry.DATASETS.get(dataset, "benchmark"), "counts", {}))


def paper_hours(dataset: str, seeds: int = 5) -> dict[tuple[str, int, MethodId], float]:
    """GPU hours of every row of the paper at the assumed rate, by benchmark, label count and method."""
    counts = published_counts(dataset)
    hours = {}
    for labels, method in rows_of(dataset):
        runs = paper_experiments(dataset, [labels], [1], {}, [method.name])
        seconds = sum(cost_of(run) * images_of(run, counts) / assumed_rate(run) for run in runs.values())
        hours[dataset, labels, method] = seeds * seconds / 3600
    return hours


def measured_rate(runs: Mapping[Path, Settings], done: Iterable[Path]) -> tuple[float, str] | None:
    """Images per second of FixMatch, computed from all finished runs on a GPU, and a description of these; or None."""
    images, seconds, devices = 0.0, 0.0, []
    for path in done:
        folder = RunFolder(path)
        device = str(folder.read_environment().get("device"))
        if device.startswith("cuda"):
            result, settings = folder.read_result(), runs[path]
            images += cost_of(settings) * result["iterations"] * settings.batch_size * (1 + settings.uratio)
            seconds += result["seconds"]
            devices.append(device.partition(" ")[2].strip("()"))
    if not seconds:
        return None
    return images / seconds, f"measured on {len(devices)} finished runs on {', '.join(dict.fromkeys(devices))}"


def render_work(title: str, work: Sequence[Work], rate: float, source: str) -> str:
    """The plan as text."""
    lines = [f"{title}: {len(work)} rows of the paper", ""]
    lines.append(f"{'labels':>6}  {'method':<34} {'runs':>5} {'done':>5} {'images':>14} {'GPU hours left':>15}")
    total = Work(0, "", *(sum(column) for column in zip(*(row[2:] for row in work), strict=True)))
    for row in (*work, total):
        label = row.labels or "total"
        hours = row.seconds / 3600
        lines.append(f"{label:>6}  {row.title:<34} {row.runs:>5} {row.done:>5} {row.images:>14,} {hours:>15.1f}")
    lines += ["", "Images: labelled and unlabelled training images, counted once per step."]
    lines.append(
        "GPU hours: steps by their passes through the network, relative to FixMatch; a pass with gradient counts "
        f"{PASS_WITH_GRADIENT} times, a style view of StyleMatch {STYLE_VIEW} times. Evaluations are not included."
    )
    return "\n".join([*lines, f"Rate of FixMatch: {rate:,.0f} images per second, {source}."])
