"""The base class that runs any USB algorithm on any device.

``class Adapted(FixMatch, SSDGBase)`` puts SSDGBase right after FixMatch in Python's method resolution order: FixMatch's
own methods take precedence, and its calls of ``super()`` reach ours before USB's. Data, device, optimizer, hooks,
evaluation and checkpoints are therefore replaced once for all algorithms, and no algorithm is changed.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from inspect import signature
from logging import Logger
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from semilearn_ext.data.device_batches import batch_makers
from semilearn_ext.data.device_images import DeviceImages, free_memory, move_images
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.data.loaders import BatchMaker, EpochLoader, PlainImages, check_shared_memory
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.averages import Averages, AveragesHook
from semilearn_ext.engine.checkpoint_writer import CheckpointWriter
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import (
    autocast_network,
    choose_precision,
    choose_views,
    evaluation_batch,
    place,
    set_backends,
    to_device,
    use_channels_last,
)
from semilearn_ext.engine.ema import EMAHook, InPlaceEMA
from semilearn_ext.engine.evaluation import EvaluationHook, predict, top1
from semilearn_ext.engine.hooks import (
    FiniteLossHook,
    LoaderSeekHook,
    ProgressHook,
    StopHook,
    TensorBoardHook,
    UpdateHook,
    WandbHook,
)
from semilearn_ext.engine.optim import build_optimizer, build_scheduler
from semilearn_ext.engine.sync_batchnorm import synchronise
from semilearn_ext.errors import UserError
from semilearn_ext.semilearn_api import AimHook, AlgorithmBase, Hook, TBLog
from semilearn_ext.settings import Settings
from semilearn_ext.specs import AlgorithmSpec


class StepLoss(NamedTuple):
    """The result of one step before the update."""

    total: Tensor
    """The loss that is minimised, with gradient."""
    terms: dict[str, Tensor | float]
    """The logged numbers: every term of the loss, and the weights of the plug-ins' terms."""


class SSDGBase(AlgorithmBase):
    """AlgorithmBase on any device, on leave-one-domain-out data, with our records and checkpoints."""

    spec: ClassVar[AlgorithmSpec]
    model: nn.Module
    ema: InPlaceEMA | None
    it: int
    epoch: int
    epochs: int
    num_classes: int
    num_train_iter: int
    num_eval_iter: int
    num_log_iter: int
    clip_grad: float
    best_eval_acc: float
    best_it: int
    optimizer: torch.optim.Optimizer
    scheduler: LambdaLR
    tb_log: TBLog | None
    loader_dict: dict[str, EpochLoader]
    dataset_dict: dict[str, BatchMaker]
    hooks_dict: dict[str, Hook]
    out_dict: dict[str, Any]
    log_dict: dict[str, Tensor | float]
    print_fn: Callable[[str], None]

    def __init__(
        self,
        args: Namespace,
        net_builder: Callable[..., Any],
        tb_log: TBLog | None = None,
        logger: Logger | None = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(args, "context"):
            raise UserError(
                f"{args.algorithm}: can only be run with ssdg train; in stock USB the same method is called "
                f"{args.algorithm.removeprefix('ssdg_').partition('@')[0]!r}"
            )
        self.context: RunContext = args.context
        self.settings = self.context.settings
        self.views_on = choose_views(self.settings, self.context.device)
        if self.views_on == "device" and self.context.device.type != "cpu":
            data = move_images(self.context.data, self.context.device, free_memory(self.context.device))
            self.context = replace(self.context, data=data)
        self.device = self.context.device
        self.precision = choose_precision(self.settings, self.device)
        if self.context.group.is_main and (reason := self.precision.slow_reason()):
            warnings.warn(f"{self.settings.where('precision')}: {reason}", stacklevel=1)
        self.channels_last = use_channels_last(self.settings, self.device)
        self.metrics: list[dict[str, float | None]] = []
        """All evaluations so far."""
        self.details: dict[str, Any] | None = None
        """The details of the last evaluation of the run."""
        self.averages = Averages(self.settings, self.context.data.total_steps)
        self.checkpoints = CheckpointWriter()
        self.seconds_before = 0.0
        self.started = time.monotonic()
        self._stop = threading.Event()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GradScaler")  # USB's is for CUDA and is replaced below
            super().__init__(args, net_builder, tb_log, logger, **kwargs)
        self.num_iter_per_epoch = self.context.data.steps_per_epoch
        self.amp_cm, self.loss_scaler = self.precision.context, self.precision.scaler()
        if self.spec.float32_losses:
            self.amp_cm = nullcontext
            autocast_network(self.model, self.precision)
        self.ema_model = None  # USB's second copy of the network; the averaged weights are in self.ema
        if self.spec.teacher or self.settings.eval_with_ema:
            self.ema = InPlaceEMA(self.model, self.ema_m)
            self.ema.register()

    @classmethod
    def check(cls, settings: Settings, data: SSDGData) -> None:
        """Raise a UserError if the algorithm cannot run with these settings and data. Called before training."""

    # --- called by USB while it builds an algorithm ------------------------------------------------------

    def set_dataset(self) -> dict[str, BatchMaker]:
        self._usb_names = frozenset(vars(self))
        data = self.context.data
        self.args.lb_dest_len = len(data.split.labelled)
        self.args.ulb_dest_len = len(data.split.unlabelled)
        # The same in all processes, whose GPUs may differ in free memory: they take turns in batches of this size.
        batch = min(self.context.group.all_gather(evaluation_batch(self.settings, self.device)))
        self.eval_sets = {
            name: self.plain_images(positions, batch, view="test")
            for name, positions in (
                ("source_val", data.split.source_val),
                ("target", data.split.target),
                ("labeled", data.split.labelled),
                ("unlabeled", data.split.unlabelled),
            )
        }
        if self.spec.labelled_only:
            del self.eval_sets["unlabeled"]
        self.print_fn(f"{self.args.lb_dest_len} labelled and {self.args.ulb_dest_len} unlabelled images")
        for note in data.notes():
            self.print_fn(note)
        return batch_makers(
            data,
            list(signature(self.train_step).parameters),
            weak_pair=self.spec.weak_pair,
            rank=self.context.group.rank,
            world_size=self.context.group.world_size,
            device=self.device if self.views_on == "device" else None,
        )

    def plain_images(self, positions: list[int], batch_size: int, *, view: Literal["test", "plain"]) -> PlainImages:
        data, device = self.context.data, self.device if self.views_on == "device" else None
        # A GPU would wait for images that are read when they are needed.
        on_host = self.device.type != "cpu" and not isinstance(data.store, DeviceImages)
        threads = max(1, self.settings.num_workers) if on_host else 0
        return PlainImages(data, positions, batch_size, view=view, device=device, threads=threads)

    def set_data_loader(self) -> dict[str, EpochLoader]:
        on_gpu, workers = self.device.type == "cuda", self.settings.num_workers
        with_workers = [maker for maker in self.dataset_dict.values() if maker.needs_workers]
        processes, where = self.context.group.local_world_size, self.settings.where("num_workers")
        check_shared_memory(with_workers, workers, processes, where)
        if on_gpu and with_workers and not workers and self.context.group.is_main:
            warnings.warn(
                f"{where}: the images are not in the GPU's memory, so it waits while this process prepares each batch; "
                f"use --num_workers 4",
                stacklevel=1,
            )
        return {
            name: EpochLoader(maker, self.num_train_iter, workers * maker.needs_workers, on_gpu)
            for name, maker in self.dataset_dict.items()
        }

    def set_ema_model(self) -> None:
        """USB builds a second network here; we keep the averaged weights in ``self.ema`` instead."""

    def set_optimizer(self) -> tuple[torch.optim.Optimizer, LambdaLR]:
        data, group = self.context.data, self.context.group
        if group.distributed:
            self.model = synchronise(self.model, self.device)
        set_backends(self.precision)
        self.model = place(self.model, self.settings, self.device)
        group.broadcast(self.model)
        optimizer = build_optimizer(self.model, self.settings)
        return optimizer, build_scheduler(optimizer, self.settings, data.steps_per_epoch, data.total_steps)

    def set_hooks(self) -> None:
        self.register_hook(FiniteLossHook(), None, "HIGHEST")
        self.register_hook(UpdateHook(), "ParamUpdateHook", "HIGHEST")
        self.register_hook(EMAHook(), None, "HIGH")
        self.register_hook(AveragesHook(), None, "HIGH")
        self.register_hook(EvaluationHook(), None, "HIGH")
        if self.context.folder is not None:
            self.register_hook(checkpoint.CheckpointHook(), None, "HIGH")
        self.register_hook(LoaderSeekHook(), None, "NORMAL")
        self.register_hook(TensorBoardHook(), None, "NORMAL")
        if self.context.group.is_main:
            self.register_hook(ProgressHook(), None, "LOW")
            if self.settings.use_wandb:
                self.register_hook(WandbHook(), None, "LOW")
            if self.settings.use_aim:
                self.register_hook(AimHook(), None, "LOW")
        self.register_hook(StopHook(), None, "LOWEST")
        for hook in self._hooks:
            _drop_double_precision(hook)

    # --- called by USB while it trains ------------------------------------------------------------------

    def process_batch(self, input_args: Iterable[str] | None = None, **batch: Tensor) -> dict[str, Tensor]:
        names = input_args or signature(self.train_step).parameters
        chosen = {name: value for name, value in batch.items() if name in names}
        return {name: to_device(value, self.device, self.channels_last) for name, value in chosen.items()}

    def step(self, **batch: Tensor) -> StepLoss:
        """Compute the loss of one batch, including plug-ins. Updates nothing except batch norm's statistics."""
        self.out_dict, self.log_dict = self.train_step(**self.process_batch(**batch))
        self.add_plugin_losses()
        return StepLoss(self.out_dict["loss"], dict(self.log_dict))

    def add_plugin_losses(self) -> None:
        """Does nothing without plug-ins; see :class:`semilearn_ext.plugins.mixin.PluginMixin`."""

    def epoch_begins(self) -> bool:
        # For a run resumed in the middle of an epoch, what is computed at its beginning is in the checkpoint.
        return self.it % self.num_iter_per_epoch == 0

    def labelled_images(self) -> list[tuple[Tensor, Tensor]]:
        """Un-augmented labelled images and their labels, one pair per source domain."""
        data = self.context.data
        parts = data.by_domain(data.split.labelled)
        groups = [self.plain_images(part.tolist(), len(part), view="plain") for part in parts]
        return [(next(x for _, x in images.share(0, 1)), images.labels) for images in groups]

    def evaluate(self, eval_dest: str = "eval", out_key: str = "logits", return_logits: bool = False) -> dict[str, Any]:
        """USB's evaluation. ``eval`` means the held-out source images; the target is never used for selection."""
        images = self.eval_sets["source_val" if eval_dest == "eval" else eval_dest]
        self.model.eval()
        logits = predict(self, images, out_key)
        self.model.train()
        loss = torch.nn.functional.cross_entropy(logits, images.labels.to(self.device))
        result: dict[str, Any] = {
            f"{eval_dest}/loss": float(loss),
            f"{eval_dest}/top-1-acc": top1(logits, images.labels),
        }
        if return_logits:
            result[f"{eval_dest}/logits"] = logits.cpu().numpy()
        return result

    # --- stop and resume ----------------------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context Ctrl-C and SIGTERM end the run after the current step; a second Ctrl-C ends it at once.

        A second SIGTERM does not, because cluster schedulers send several before they kill a process.
        """

        def on_signal(number: int, _: object) -> None:
            if self._stop.is_set() and number == signal.SIGINT:
                signal.default_int_handler(number, None)
            self.request_stop()

        before = {name: signal.signal(name, on_signal) for name in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def request_stop(self) -> None:
        self._stop.set()

    def stop_requested(self) -> bool:
        return self._stop.is_set()

    def state(self, iteration: int) -> dict[str, Any]:
        """Everything needed to resume after ``iteration`` steps bit for bit."""
        return {
            "iteration": iteration,
            "run": dict(self.context.identity),
            "seconds": self.seconds_before + time.monotonic() - self.started,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.loss_scaler.state_dict(),
            "ema": None if self.ema is None else dict(self.ema.shadow),
            "averages": self.averages.state(),
            "best": [self.best_eval_acc, self.best_it],
            "metrics": list(self.metrics),
            "details": self.details,
            "processes": self.context.group.all_gather(self._own_state()),
        }

    def _own_state(self) -> dict[str, Any]:
        """The state that may differ between processes: FlexMatch, for one, counts the images seen by its process."""
        return {
            "algorithm": checkpoint.plain_state(self._own_attributes()),
            "hooks": {name: checkpoint.plain_state(vars(hook)) for name, hook in self.hooks_dict.items()},
            "random": checkpoint.random_state(self.device),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Load ``state``; :meth:`train` then continues from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        if state["scaler"]:  # empty if the run was not in fp16 before; the scaler then keeps its initial state
            self.loss_scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            for name, value in state["ema"].items():
                self.ema.shadow[name].copy_(value)
        self.averages.restore(state["averages"], self.device)
        self.best_eval_acc, self.best_it = state["best"]
        self.metrics[:] = state["metrics"]
        self.details = state["details"]
        self._restore_own_state(state["processes"])
        self.it = state["iteration"]
        self.start_epoch = self.it // self.num_iter_per_epoch
        self.seconds_before = state["seconds"]

    def _restore_own_state(self, processes: list[dict[str, Any]]) -> None:
        """Restore the state of this process, or that of the first one if the number of processes has changed."""
        group = self.context.group
        is_same_size = len(processes) == group.world_size
        own = processes[group.rank if is_same_size else 0]
        checkpoint.restore_plain_state(self, own["algorithm"], self.device)
        for name in own["hooks"].keys() & self.hooks_dict.keys():
            checkpoint.restore_plain_state(self.hooks_dict[name], own["hooks"][name], self.device)
        if is_same_size:
            checkpoint.restore_random_state(own["random"], self.device)

    def save_checkpoint(self, iteration: int) -> None:
        """Start writing a checkpoint; ``self.checkpoints.wait()`` waits until it is written."""
        assert self.context.folder is not None
        state = self.state(iteration)
        if self.context.group.is_main:
            self.checkpoints.save(self.context.folder.path, state)

    def _own_attributes(self) -> dict[str, Any]:
        """The attributes of the algorithm itself, without those of USB's base class and of this one."""
        engine_names = {"epoch", "device", "num_iter_per_epoch"}
        return {k: v for k, v in vars(self).items() if k not in self._usb_names and k not in engine_names}


def _drop_double_precision(hook: Hook) -> None:
    """Convert float64 tensors to float32: USB's distribution alignment uses float64, which MPS does not support."""
    for name, value in vars(hook).items():
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            setattr(hook, name, value.float())
