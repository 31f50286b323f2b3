"""Train one run: check and lock the folder, build the algorithm, train, and write ``result.json``."""

from __future__ import annotations

import errno
import io
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

from semilearn_ext import distributed, files
from semilearn_ext.algorithms import requirements
from semilearn_ext.algorithms.compose import register
from semilearn_ext.data.experiment import known_digests
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine import checkpoint, device
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.context import RunContext, make_context, usb_args
from semilearn_ext.errors import UserError, printable
from semilearn_ext.nets.build import net_builder
from semilearn_ext.registry import NETS
from semilearn_ext.runs import environment, ownership
from semilearn_ext.runs.file_names import TENSORBOARD_FOLDER
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.runs.lock import lock
from semilearn_ext.runs.result import summarise
from semilearn_ext.semilearn_api import TBLog, get_algorithm
from semilearn_ext.settings import Settings


@dataclass(frozen=True)
class Outcome:
    """The result of a run, and whether it was already finished."""

    result: dict[str, Any]
    was_finished: bool


def run(settings: Settings, group: ProcessGroup | None = None) -> Outcome:
    """Train on one target domain with one seed, resume that run, or read its result if it is finished."""
    group = group or ProcessGroup()
    folder = RunFolder(run_path(settings))
    if group.is_main:
        ownership.check_folder(folder, settings)
    if folder.is_finished and not settings.overwrite:
        outcome = _read_finished(folder)
        if group.is_main and (difference := ownership.different_data(outcome.result, known_digests(settings))):
            warnings.warn(f"{folder.path}: the finished run was trained on {difference}", stacklevel=2)
        return outcome
    context = make_context(settings, folder=folder, group=group)
    requirements.check(settings, context.data)
    builder = net_builder(settings)
    # Nothing is written before the data and the weights have been checked.
    with lock(folder.path) if group.is_main else nullcontext():
        # Another process may have finished the run while the data were loaded.
        if any(group.all_gather(group.is_main and folder.is_finished and not settings.overwrite)):
            return _read_finished(folder)
        return Outcome(_train(context, builder), was_finished=False)


def _read_finished(folder: RunFolder) -> Outcome:
    result = folder.read_checked_result()
    folder.check_evaluations(result)
    return Outcome(result, was_finished=True)


def _train(context: RunContext, builder: Callable[..., Any]) -> dict[str, Any]:
    settings, group, folder = context.settings, context.group, context.folder
    assert folder is not None
    if group.is_main:
        ownership.claim(folder, settings, context.data.digests())
        ownership.check_split(folder, context.data.split_json())
    group.barrier()
    logger = _logger(folder) if group.is_main else silent_logger()
    try:
        algorithm, state = _build_or_resume(context, builder, logger)
        if group.is_main:
            _write_provenance(context)
            _write_metrics(folder, algorithm, logger)
        if state is not None:
            logger.info(f"resuming after iteration {state['iteration']}")
        elif hasattr(algorithm, "warmup"):
            algorithm.warmup()
        with algorithm.checkpoints, algorithm.listening(), disk_full_is_an_error(folder.path):
            algorithm.train()
        return _finish(context, algorithm)
    finally:
        _close(logger)


def _build_or_resume(
    context: RunContext, builder: Callable[..., Any], logger: logging.Logger
) -> tuple[SSDGBase, dict[str, Any] | None]:
    """The algorithm with the state of the newest usable checkpoint, and that state, or None if there is none."""
    assert context.folder is not None
    algorithm, used = build(context, builder, logger), False

    def restore(state: dict[str, Any], path: Path) -> None:
        nonlocal algorithm, used
        if used:  # an unfit checkpoint may have been partly restored
            algorithm = build(context, builder, logger)
        used = True
        checkpoint.restore(algorithm, state, path)

    state = checkpoint.load_newest(context.folder.path, lambda line: _report(logger, line), restore)
    return algorithm, state


@contextmanager
def disk_full_is_an_error(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UserError(
            f"{folder}: {error.strerror}; saved checkpoints are kept; free some space and re-run the same command"
        ) from None


def build(context: RunContext, builder: Callable[..., Any] | None = None, logger: Any = None) -> SSDGBase:
    """Seed every random number generator and build the algorithm through USB's registry."""
    settings = context.settings
    register(settings.algorithm, settings.step)
    random.seed(settings.seed)
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    builder = builder or net_builder(settings)
    algorithm: SSDGBase = get_algorithm(usb_args(context), builder, _tensorboard(context), logger)
    return algorithm


def _tensorboard(context: RunContext) -> Any:
    if not context.settings.use_tensorboard or context.folder is None or not context.group.is_main:
        return None
    place = context.folder.path / TENSORBOARD_FOLDER
    if place.is_symlink():
        raise UserError(f"{place}: is a symbolic link, which is not followed when writing; remove it")
    return TBLog(str(context.folder.path), TENSORBOARD_FOLDER, use_tensorboard=True)


def _write_provenance(context: RunContext) -> None:
    assert context.folder is not None
    settings = context.settings
    own_weights = NETS.get(settings.net, "net").weights
    weights = (settings.pretrain_path or own_weights) if settings.pretrained else "from scratch"
    described = environment.describe(
        device.describe(context.device),
        device.choose_precision(settings, context.device).name,
        device.choose_views(settings, context.device),
        context.group.world_size,
        Path(weights).name,
    )
    context.folder.write_environment(described)
    context.folder.write_split(context.data.split_json())


def _write_metrics(folder: RunFolder, algorithm: SSDGBase, logger: logging.Logger) -> None:
    """Write the evaluations up to the checkpoint, which contains them; later ones will be repeated."""
    try:
        existing = [record for record in folder.read_metrics() if record.get("iteration", 0) <= algorithm.it]
    except (UserError, TypeError):
        existing = []
    if algorithm.metrics and existing != algorithm.metrics:
        _report(
            logger, f"{folder.metrics_file}: does not match the evaluations of this run; restored from its checkpoint"
        )
    folder.write_metrics(algorithm.metrics)


def _finish(context: RunContext, algorithm: SSDGBase) -> dict[str, Any]:
    assert context.folder is not None
    if not algorithm.metrics or algorithm.details is None:
        raise UserError(
            f"{context.folder.path}: the run finished without any evaluation; run it again with --overwrite"
        )
    result = summarise(context.settings, algorithm.metrics, context.data.scale, context.data.digest)
    result["precision"] = algorithm.precision.name
    result["pixels_sha256"] = context.data.pixels_digest or None
    if context.group.is_main:
        context.folder.write_details(algorithm.details)
        result["details_sha256"] = context.folder.details_hash()
        result["metrics_sha256"] = context.folder.metrics_hash()
        result["files_sha256"] = context.folder.file_hashes()
        context.folder.write_result(result)
        for old in checkpoint.checkpoint_files(context.folder.path)[:-1]:
            old.unlink()
    context.group.barrier()
    return result


def _logger(folder: RunFolder) -> logging.Logger:
    """The logger that writes the messages of USB and the hooks to the run's log."""
    logger = logging.getLogger(f"semilearn_ext.{folder.path}")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    handler = _LogFile(folder.log_file)
    handler.setFormatter(_OneLine("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    logger.addHandler(handler)
    return logger


class _LogFile(logging.FileHandler):
    def _open(self) -> Any:
        return io.TextIOWrapper(files.open_to_append(Path(self.baseFilename)), "utf-8", "backslashreplace")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


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


def join_processes(settings: Settings) -> ProcessGroup:
    """Join the process group started by ``torchrun``."""
    group = distributed.from_environment()
    own = device.choose_device(settings, group.local_rank)
    if group.distributed and own.type == "mps":
        raise UserError(
            f"{settings.where('device')}: several processes cannot share an Apple GPU; start a single process, or use "
            f"--device cpu"
        )
    distributed.init(group, own)
    return group
