"""One run from settings to ``result.json``: open the folder, build the algorithm, train, write the outcome."""

from __future__ import annotations

import errno
import logging
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from semilearn_ext.algorithms import register, requirements
from semilearn_ext.engine import checkpoint, device, processes
from semilearn_ext.engine.context import RunContext, make_context, usb_args
from semilearn_ext.engine.processes import Processes
from semilearn_ext.errors import UserError
from semilearn_ext.nets import net_builder
from semilearn_ext.runs import environment
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.lock import hold
from semilearn_ext.runs.result import summarise
from semilearn_ext.settings import Settings
from semilearn_ext.usb import TBLog, get_algorithm


@dataclass(frozen=True)
class Outcome:
    """A run's result, and whether it was there already."""

    result: dict[str, Any]
    was_finished: bool


def run(settings: Settings, group: Processes | None = None) -> Outcome:
    """Train one target domain with one seed, or read what such a run left. Resumes by itself."""
    group = group or Processes()
    folder = RunFolder(run_path(settings))
    if group.is_main:
        folder.check(settings)
    if folder.is_finished and not settings.overwrite:
        return Outcome(folder.read_result(), was_finished=True)
    context = make_context(settings, folder=folder, processes=group)
    requirements.check(settings, context.data)
    builder = net_builder(settings)
    # Nothing is written before what can be wrong with the data and the weights has been found out.
    with hold(folder.path) if group.is_main else nullcontext():
        # Somebody else may have finished it while the data were read.
        if any(group.gather(group.is_main and folder.is_finished and not settings.overwrite)):
            return Outcome(folder.read_result(), was_finished=True)
        return Outcome(_train(context, builder), was_finished=False)


def _train(context: RunContext, builder: Callable[..., Any]) -> dict[str, Any]:
    settings, group, folder = context.settings, context.processes, context.folder
    assert folder is not None
    if group.is_main:
        folder.claim(settings)
    group.wait()
    logger = _logger(folder.path) if group.is_main else silent_logger()
    try:
        algorithm = build(context, builder, logger)
        state = checkpoint.load_newest(folder.path, lambda line: _report(logger, line))
        if group.is_main:
            _write_provenance(context, state)
        if state is not None:
            algorithm.restore(state)
            algorithm.metrics[:] = folder.read_metrics()
            logger.info(f"going on after iteration {state['iteration']}")
        elif hasattr(algorithm, "warmup"):
            algorithm.warmup()
        with algorithm.listening(), disk_full_is_an_error(folder.path):
            algorithm.train()
        return _finish(context, algorithm)
    finally:
        _close(logger)


@contextmanager
def disk_full_is_an_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(f"{folder}: {error.strerror}; what was saved is kept; make room and run it again") from None


def build(context: RunContext, builder: Callable[..., Any] | None = None, logger: Any = None) -> Any:
    """The algorithm, through USB's own registry, with every random number generator seeded before."""
    settings = context.settings
    register(settings.algorithm, settings.step)
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    return get_algorithm(usb_args(context), builder or net_builder(settings), _tensorboard(context), logger)


def _tensorboard(context: RunContext) -> Any:
    if not context.settings.use_tensorboard or context.folder is None or not context.processes.is_main:
        return None
    return TBLog(str(context.folder.path), "tensorboard", use_tensorboard=True)


def _write_provenance(context: RunContext, state: dict[str, Any] | None) -> None:
    assert context.folder is not None
    settings = context.settings
    weights = (settings.pretrain_path or "torchvision IMAGENET1K_V1") if settings.pretrained else "from scratch"
    made_with = environment.describe(device.describe(context.device), context.processes.world, Path(weights).name)
    context.folder.write_json("environment.json", made_with)
    context.folder.write_json("split.json", context.data.split_json())
    context.folder.rewind_metrics(0 if state is None else state["iteration"])


def _finish(context: RunContext, algorithm: Any) -> dict[str, Any]:
    assert context.folder is not None
    if not algorithm.metrics:
        raise UserError(f"{context.folder.path}: the run ended without an evaluation; start it anew with --overwrite")
    result = summarise(context.settings, algorithm.metrics, context.data.scale)
    if context.processes.is_main:
        context.folder.write_json("result.json", result)
        for old in checkpoint.checkpoint_files(context.folder.path)[:-1]:
            old.unlink()
    context.processes.wait()
    return result


def _logger(folder: Path) -> logging.Logger:
    """Everything USB and the hooks say goes into the run's ``log.txt``."""
    logger = logging.getLogger(f"semilearn_ext.{folder}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = logging.FileHandler(folder / "log.txt")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    return logger


def silent_logger() -> logging.Logger:
    logger = logging.getLogger("semilearn_ext.silent")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


def _close(logger: logging.Logger) -> None:
    for handler in list(logger.handlers):
        handler.close()
        logger.removeHandler(handler)


def _report(logger: logging.Logger, line: str) -> None:
    logger.warning(line)
    warnings.warn(line, stacklevel=2)


def join_processes(settings: Settings) -> Processes:
    """This process's place among those ``torchrun`` started, connected to the others."""
    group = processes.from_environment()
    processes.join(group, device.choose_device(settings, group.local_rank))
    return group
