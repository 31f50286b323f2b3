"""The time that a whole run spends on training, evaluation and checkpoints.

A few steps, one evaluation and one checkpoint are timed and multiplied by how often they occur in a run with this
config. For a checkpoint, only the copy of the state is counted, because the file is written while training continues.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from semilearn_ext import training
from semilearn_ext.bench.budget import Part, Stopwatch, table
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.evaluation import measure as evaluate
from semilearn_ext.engine.evaluation import measure_averages
from semilearn_ext.runs.folder import RunFolder
from semilearn_ext.semilearn_api import Hook
from semilearn_ext.settings import Settings, load_settings, with_values
from semilearn_ext.settings.domains import targets_of

DEFAULTS: dict[str, Any] = {"algorithm": "fixmatch", "target_domain": "pen", "epoch": 10}


class StepTimesHook(Hook):
    """Records the time at the end of every step. Must be registered last."""

    def __init__(self, stopwatch: Stopwatch) -> None:
        self.stopwatch, self.times = stopwatch, list[float]()

    def after_train_step(self, algorithm: SSDGBase) -> None:
        self.times.append(self.stopwatch.now())


def counts(data: SSDGData) -> tuple[int, int, int]:
    """Number of steps, evaluations and checkpoints in the whole run."""
    steps = data.total_steps
    every = data.settings.checkpoint_every or data.eval_every
    return steps, -(-steps // data.eval_every), -(-steps // every)


def main(config: Path | None, overrides: dict[str, Any], steps: int) -> tuple[str, float]:
    """Return the report and the steps per second. The default config is FixMatch on digits_mini."""
    settings = load_settings(config, {**(DEFAULTS if config is None else {}), **overrides})
    settings = with_values(settings, target_domain=targets_of(settings)[0], progress=False)
    run_counts = counts(make_context(settings).data)
    lines, rate = _report(settings, run_counts, steps)
    return "\n".join(lines), rate


def _report(settings: Settings, run_counts: tuple[int, int, int], steps: int) -> tuple[list[str], float]:
    with tempfile.TemporaryDirectory() as folder:
        short = with_values(settings, num_train_iter=steps + 1)
        algorithm = training.build(make_context(short, folder=RunFolder(Path(folder))))
        watch, last, saving = (Stopwatch(algorithm.device) for _ in range(3))
        ends = StepTimesHook(watch)
        algorithm.register_hook(ends, None, "LOWEST")
        for name in ("EvaluationHook", "CheckpointHook"):
            algorithm.hooks_dict.pop(name)
        algorithm.train()
        for _ in range(2):  # the first evaluation is a warm-up
            watch.wrap(evaluate)(algorithm)
        last.wrap(measure_averages)(algorithm)
        with algorithm.checkpoints as writer:
            saving.wrap(algorithm.save_checkpoint)(1)
            start = time.perf_counter()
            writer.wait()
        writing = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    step = statistics.median(after - before for before, after in zip(ends.times, ends.times[1:], strict=False))
    parts = [
        Part("training step", run_counts[0], step),
        Part("evaluation", run_counts[1], watch.seconds[-1]),
        Part("evaluation of averages", 1, last.seconds[0]),
        Part("checkpoint (blocking part)", run_counts[2], saving.seconds[0]),
    ]
    images = sum(len(images) for images in algorithm.eval_sets.values())
    share = (parts[1].total + parts[2].total) / parts[0].total
    lines = [
        f"{settings.algorithm}, step: {settings.step}, {settings.dataset} -> {settings.target_domain}, {settings.net}, "
        f"{settings.img_size}x{settings.img_size}, {algorithm.precision.name}, views on {algorithm.views_on}",
        *table(parts, algorithm.device),
        f"evaluation is {100 * share:.1f} % of the training time (goal for the paper's configs: at most 10 %)",
        f"evaluation speed is {images / watch.seconds[-1]:.0f} images per second; a checkpoint of {size / 1e6:.1f} MB "
        f"is written in {1000 * writing:.0f} ms while training continues",
    ]
    return lines, 1 / step
