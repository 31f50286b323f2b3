"""The hooks of a step besides evaluation and checkpoints: update, guard, position, stop, track, progress."""

from __future__ import annotations

import math
import sys
from typing import Any

import torch
from tqdm import tqdm

from semilearn_ext.engine.optim import current_rates
from semilearn_ext.errors import Interrupted, UserError
from semilearn_ext.usb import Hook, ParamUpdateHook


class GuardHook(Hook):
    """Stops before the weights are touched when a loss is not a finite number. What was saved stays good.

    USB's own losses are numbers already. Those of plug-ins are tensors; on a GPU, looking at one would wait for the
    device, so it is done only in the steps that are recorded or saved: nothing bad gets into a checkpoint.
    """

    def after_train_step(self, algorithm: Any) -> None:
        look = algorithm.device.type == "cpu" or self._is_kept(algorithm)
        for name, value in algorithm.log_dict.items():
            if isinstance(value, torch.Tensor) and not look:
                continue
            if not math.isfinite(value):
                raise UserError(
                    f"{name} is {float(value)} at iteration {algorithm.it + 1}: stopped, the last good checkpoint is "
                    f"kept; try a lower lr, clip_grad 1, or amp false"
                )

    def _is_kept(self, algorithm: Any) -> bool:
        every = (algorithm.num_eval_iter, algorithm.num_log_iter, algorithm.settings.checkpoint_every)
        return self.is_last_iter(algorithm) or any(self.every_n_iters(algorithm, n) for n in every)


class UpdateHook(ParamUpdateHook):
    """USB's update with gradients averaged over the processes and no synchronisation with the device."""

    def before_train_step(self, algorithm: Any) -> None:
        """USB starts a CUDA timer here."""

    def after_train_step(self, algorithm: Any) -> None:
        scaler = algorithm.loss_scaler
        scaler.scale(algorithm.out_dict["loss"]).backward()
        algorithm.context.processes.average_gradients(algorithm.model.parameters())
        if algorithm.clip_grad > 0:
            scaler.unscale_(algorithm.optimizer)
            torch.nn.utils.clip_grad_norm_(algorithm.model.parameters(), algorithm.clip_grad)
        scaler.step(algorithm.optimizer)
        scaler.update()
        if algorithm.scheduler is not None:
            algorithm.scheduler.step()
        algorithm.optimizer.zero_grad()


class PositionHook(Hook):
    """Tells the loaders where the run is, so that every epoch, and a resumed one, begins at the right batch."""

    def before_train_epoch(self, algorithm: Any) -> None:
        for name in ("train_lb", "train_ulb"):
            if name in algorithm.loader_dict:
                algorithm.loader_dict[name].seek(algorithm.it)


class StopHook(Hook):
    """Ends the run after a step when somebody asked for it (Ctrl-C, a scheduler's signal), having saved it."""

    def after_train_step(self, algorithm: Any) -> None:
        context = algorithm.context
        if context.processes.several and not self.every_n_iters(algorithm, algorithm.num_log_iter):
            return
        if not context.processes.agree(algorithm.stop_requested(), context.device):
            return
        if context.folder is None:
            raise Interrupted(f"stopped after iteration {algorithm.it + 1}; nothing was saved, as asked")
        algorithm.save_checkpoint(algorithm.it + 1)
        raise Interrupted(
            f"stopped after iteration {algorithm.it + 1} of {algorithm.num_train_iter}, saved in "
            f"{context.folder.path}; the same command goes on from there"
        )


class TrackHook(Hook):
    """TensorBoard, every ``num_log_iter`` steps and at evaluations."""

    def after_train_step(self, algorithm: Any) -> None:
        due = self.every_n_iters(algorithm, algorithm.num_log_iter)
        if due or self.every_n_iters(algorithm, algorithm.num_eval_iter) or self.is_last_iter(algorithm):
            algorithm.log_dict.update(current_rates(algorithm.optimizer))
            if algorithm.tb_log is not None:
                algorithm.tb_log.update(algorithm.log_dict, algorithm.it + 1)


class ProgressHook(Hook):
    """A bar on a terminal, a line an evaluation elsewhere, and that line in the log in any case."""

    def before_run(self, algorithm: Any) -> None:
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

    def after_train_step(self, algorithm: Any) -> None:
        self.bar.update()
        if len(algorithm.metrics) == self.logged:
            return
        self.logged = len(algorithm.metrics)
        record = algorithm.metrics[-1]
        losses = [f"{n.removeprefix('train/')} {v:.3f}" for n, v in record.items() if n.startswith("train/")]
        measured = [n for n in ("source_val", "unlabeled", "target") if f"{n}/top1" in record]
        scores = [f"{n} {record[f'{n}/top1']:.1%}" for n in measured]
        self.bar.set_postfix_str(", ".join(scores))
        line = f"iteration {record['iteration']}/{algorithm.num_train_iter}: {', '.join([*losses, *scores])}"
        algorithm.print_fn(line)
        if self.bar.disable and algorithm.settings.progress:
            print(f"  {self.title}  {line}", file=sys.stderr, flush=True)

    def after_run(self, algorithm: Any) -> None:
        self.bar.close()
