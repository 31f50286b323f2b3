"""The hooks of a step, except those for evaluation and checkpoints."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

from semilearn_ext.engine.optim import current_rates
from semilearn_ext.errors import Interrupted, UserError
from semilearn_ext.semilearn_api import Hook, ParamUpdateHook, WANDBHook

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase


class FiniteLossHook(Hook):
    """Stops the run before the update if a loss is not finite, so that the last checkpoint stays good.

    On a GPU, losses are tensors and reading one waits for the device. They are therefore read only in steps that are
    logged or saved, which is enough to keep bad weights out of every checkpoint. :class:`StopHook` reads them too.
    """

    def after_train_step(self, algorithm: SSDGBase) -> None:
        check_losses_are_finite(algorithm, read_tensors=algorithm.device.type == "cpu" or self._is_saved(algorithm))

    def _is_saved(self, algorithm: SSDGBase) -> bool:
        every = (algorithm.num_eval_iter, algorithm.num_log_iter, algorithm.settings.checkpoint_every)
        return self.is_last_iter(algorithm) or any(self.every_n_iters(algorithm, n) for n in every)


def check_losses_are_finite(algorithm: SSDGBase, read_tensors: bool = True) -> None:
    """Raise an error if a loss of this step is not finite."""
    for name, value in algorithm.log_dict.items():
        if not name.startswith("train/") or (isinstance(value, torch.Tensor) and not read_tensors):
            continue
        if not math.isfinite(value):
            raise UserError(
                f"{name} is {float(value)} at iteration {algorithm.it + 1}; training stopped, and the last good "
                f"checkpoint is kept; try a lower lr, clip_grad 1, or precision float32"
            )


class UpdateHook(ParamUpdateHook):
    """USB's parameter update, with gradients averaged over the processes and without waiting for the device."""

    def before_train_step(self, algorithm: SSDGBase) -> None:
        """Does nothing; USB starts a CUDA timer here."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        scaler = algorithm.loss_scaler
        scaler.scale(algorithm.out_dict["loss"]).backward()
        algorithm.context.group.average_gradients(algorithm.model.parameters())
        if algorithm.clip_grad > 0:
            scaler.unscale_(algorithm.optimizer)
            torch.nn.utils.clip_grad_norm_(algorithm.model.parameters(), algorithm.clip_grad)
        scaler.step(algorithm.optimizer)
        scaler.update()
        if algorithm.scheduler is not None:  # there is none in Dash's warm-up
            with _overflow_expected() if scaler.is_enabled() else nullcontext():
                algorithm.scheduler.step()
        algorithm.optimizer.zero_grad()


@contextmanager
def _overflow_expected() -> Iterator[None]:
    """A step whose gradients overflow in fp16 is left out, often the first one, which torch takes for a mistake."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
        yield


class LoaderSeekHook(Hook):
    """Moves the loaders to the current iteration, so that every epoch, and a resumed run, starts at the right batch."""

    def before_train_epoch(self, algorithm: SSDGBase) -> None:
        for name in ("train_lb", "train_ulb"):
            if name in algorithm.loader_dict:
                algorithm.loader_dict[name].seek(algorithm.it)


class StopHook(Hook):
    """Saves a checkpoint and stops the run after a step if a stop was requested (Ctrl-C or a scheduler's signal)."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        context = algorithm.context
        if context.group.distributed and not self.every_n_iters(algorithm, algorithm.num_log_iter):
            return
        if not context.group.any(algorithm.stop_requested(), context.device):
            return
        if context.folder is None:
            raise Interrupted(f"stopped after iteration {algorithm.it + 1}; nothing was saved")
        check_losses_are_finite(algorithm)
        algorithm.save_checkpoint(algorithm.it + 1)
        algorithm.checkpoints.wait()
        context.group.barrier()
        raise Interrupted(
            f"stopped after iteration {algorithm.it + 1} of {algorithm.num_train_iter} and saved to "
            f"{context.folder.path}; re-run the same command to resume"
        )


class TensorBoardHook(Hook):
    """Logs to TensorBoard every ``num_log_iter`` steps and at evaluations."""

    def after_train_step(self, algorithm: SSDGBase) -> None:
        if is_logged(self, algorithm):
            algorithm.log_dict.update(current_rates(algorithm.optimizer))
            if algorithm.tb_log is not None:
                algorithm.tb_log.update(algorithm.log_dict, algorithm.it + 1)


def is_logged(hook: Hook, algorithm: SSDGBase) -> bool:
    due = hook.every_n_iters(algorithm, algorithm.num_log_iter)
    return bool(due or hook.every_n_iters(algorithm, algorithm.num_eval_iter) or hook.is_last_iter(algorithm))


class WandbHook(WANDBHook):
    """USB's hook for Weights & Biases, but with every number that TensorBoard gets.

    USB's own hook sends only a few, and the accuracy on the target domain is not among them.
    """

    def before_run(self, algorithm: SSDGBase) -> None:
        import wandb

        try:
            super().before_run(algorithm)
        except (wandb.errors.Error, ValueError) as error:  # ValueError: an invalid WANDB_ variable
            raise UserError(
                f"use_wandb: Weights & Biases cannot be used ({' '.join(str(error).split())}); log in with 'wandb "
                f"login', or set WANDB_MODE=offline"
            ) from None

    def after_train_step(self, algorithm: SSDGBase) -> None:
        if is_logged(self, algorithm):
            values = {name: float(value) for name, value in algorithm.log_dict.items()}
            self.run.log({**values, "eval/best-acc": algorithm.best_eval_acc}, step=algorithm.it + 1)


class ProgressHook(Hook):
    """Shows a progress bar on a terminal and one line per evaluation elsewhere. The lines are also logged."""

    def before_run(self, algorithm: SSDGBase) -> None:
        self.title = f"{algorithm.settings.algorithm} -> {algorithm.settings.target_domain}"
        self.bar = tqdm(
            total=algorithm.num_train_iter,
            initial=algorithm.it,
            desc=self.title,
            unit="it",
            disable=not (algorithm.settings.progress and sys.stderr.isatty()),
            dynamic_ncols=True,
        )
        self.logged = len(algorithm.metrics)

    def after_train_step(self, algorithm: SSDGBase) -> None:
        self.bar.update()
        if len(algorithm.metrics) == self.logged:
            return
        self.logged = len(algorithm.metrics)
        record = algorithm.metrics[-1]
        losses = [_shown(name, record) for name in record if name.startswith("train/") and not name.endswith("_weight")]
        measured = [n for n in ("source_val", "unlabeled", "target") if f"{n}/top1" in record]
        scores = [f"{n} {record[f'{n}/top1']:.1%}" for n in measured]
        self.bar.set_postfix_str(", ".join(scores))
        line = f"iteration {record['iteration']}/{algorithm.num_train_iter}: {', '.join([*losses, *scores])}"
        algorithm.print_fn(line)
        if self.bar.disable and algorithm.settings.progress:
            print(f"  {self.title}  {line}", file=sys.stderr, flush=True)

    def after_run(self, algorithm: SSDGBase) -> None:
        self.bar.close()


def _shown(name: str, record: Mapping[str, float | None]) -> str:
    """A term of the loss and, for a plug-in's term, its weight: ``upc 1.234 x 0.333``."""
    weight = record.get(f"{name}_weight")
    return f"{name.removeprefix('train/')} {record[name]:.3f}" + ("" if weight is None else f" x {weight:.3g}")
