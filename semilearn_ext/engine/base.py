"""What stands between any USB algorithm and USB's AlgorithmBase, and makes it portable.

``class Adapted(FixMatch, SSDGBase)`` puts SSDGBase right behind FixMatch in Python's method order: FixMatch's own
methods stay on top, and where it says ``super()`` it reaches ours instead of USB's. So data, device, optimizer,
hooks, evaluation and checkpoints are replaced once, for every algorithm, and none of them is touched.
"""

from __future__ import annotations

import signal
import threading
import time
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar, NamedTuple

import torch

from semilearn_ext.data.loaders import BatchMaker, EpochLoader, PlainImages, batch_makers
from semilearn_ext.data.ssdg import SSDGData
from semilearn_ext.engine import checkpoint
from semilearn_ext.engine.context import RunContext
from semilearn_ext.engine.device import choose_precision, place, to_device
from semilearn_ext.engine.ema import EMAHook, InPlaceEMA
from semilearn_ext.engine.evaluation import EvaluationHook, predict, top1
from semilearn_ext.engine.hooks import GuardHook, PositionHook, ProgressHook, StopHook, TrackHook, UpdateHook
from semilearn_ext.engine.observing import ForgetHook, Observer, PluginHook
from semilearn_ext.engine.optim import build_optimizer, build_scheduler
from semilearn_ext.engine.sync_batchnorm import synchronise
from semilearn_ext.errors import UserError
from semilearn_ext.plugins import Scene, attach
from semilearn_ext.settings import Settings
from semilearn_ext.settings.methods import LABELLED_ONLY, parse_name
from semilearn_ext.usb import AimHook, AlgorithmBase, WANDBHook


class Traits(NamedTuple):
    """What an algorithm wants that its signature does not say."""

    weak_pair: bool = False
    """Both unlabelled views are weak."""
    teacher: bool = False
    """It predicts with averaged weights while training."""
    cuda_calls: bool = False
    """It says ``.cuda()`` in its own code."""
    projected_features: bool = False
    """The features it returns are a projection, not what it classifies."""
    one_call: bool = False
    """It classifies labelled, weak and strong views in one call, in this order."""
    labelled_too: bool = False
    """It treats its labelled images as unlabelled ones too."""


class SSDGBase(AlgorithmBase):
    """AlgorithmBase on any device, on leave-one-domain-out data, with our records and checkpoints."""

    traits: ClassVar[Traits] = Traits()
    plugin_names: ClassVar[tuple[str, ...]] = ()
    model: Any
    ema: Any

    def __init__(
        self,
        args: Namespace,
        net_builder: Callable[..., Any],
        tb_log: Any = None,
        logger: Any = None,
        **kwargs: Any,
    ) -> None:
        self.context: RunContext = args.context
        self.settings = self.context.settings
        self.device = self.context.device
        self.metrics: list[dict[str, Any]] = []
        self.seconds_before = 0.0
        self.started = time.monotonic()
        self._stop = threading.Event()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*GradScaler")  # USB makes one for CUDA; ours follows
            super().__init__(args, net_builder, tb_log, logger, **kwargs)
        self.num_iter_per_epoch = self.context.data.steps_per_epoch
        precision = choose_precision(self.settings, self.device)
        self.amp_cm, self.loss_scaler = precision.context, precision.scaler()
        self.ema_model = None  # USB's second copy of the network; the averaged weights live in self.ema
        if self.traits.teacher or self.settings.eval_with_ema:
            self.ema = InPlaceEMA(self.model, self.ema_m)
            self.ema.register()

    @classmethod
    def check(cls, settings: Settings, data: SSDGData) -> None:
        """Raise a UserError, before anything is trained or written, where the algorithm cannot work."""

    # --- what USB asks for when it builds an algorithm ------------------------------------------------------

    def set_dataset(self) -> dict[str, BatchMaker]:
        self._usb_names = frozenset(vars(self))
        data = self.context.data
        self.args.lb_dest_len = len(data.split.labelled)
        self.args.ulb_dest_len = len(data.split.unlabelled)
        self.eval_sets = {
            name: PlainImages(data, positions, self.settings.eval_batch_size)
            for name, positions in (
                ("source_val", data.split.source_val),
                ("target", data.split.target),
                ("labeled", data.split.labelled),
                ("unlabeled", data.split.unlabelled),
            )
        }
        if parse_name(self.settings.algorithm, "algorithm").base in LABELLED_ONLY:
            del self.eval_sets["unlabeled"]
        self.print_fn(f"{self.args.lb_dest_len} labelled and {self.args.ulb_dest_len} unlabelled images")
        return batch_makers(
            data,
            list(signature(self.train_step).parameters),
            weak_pair=self.traits.weak_pair,
            rank=self.context.processes.rank,
            world=self.context.processes.world,
        )

    def set_data_loader(self) -> dict[str, EpochLoader]:
        on_gpu = self.device.type == "cuda"
        return {
            name: EpochLoader(maker, self.num_train_iter, self.settings.num_workers, pin_memory=on_gpu)
            for name, maker in self.dataset_dict.items()
        }

    def set_ema_model(self) -> None:
        """USB builds a second network here; averaged weights are kept in ``self.ema`` instead."""

    def set_optimizer(self) -> tuple[Any, Any]:
        data, processes = self.context.data, self.context.processes
        self._add_plugins()
        if processes.several:
            self.model = synchronise(self.model, self.device)
        self.model = place(self.model, self.settings, self.device)
        processes.broadcast(self.model)
        optimizer = build_optimizer(self.model, self.settings)
        return optimizer, build_scheduler(optimizer, self.settings, data.steps_per_epoch, data.total_steps)

    def _add_plugins(self) -> None:
        domains = len(self.context.data.sources)
        scene = Scene(self.model.num_features, self.num_classes, domains)
        self.plugins = attach(self.plugin_names, self.settings.options, self.model, scene)
        if not self.plugins:
            return
        self.observer = Observer(self)
        lay_out = getattr(self.observer.classifier, "lay_out", None)
        if not self.settings.use_cat and (self.traits.projected_features or (self.traits.one_call and lay_out)):
            raise UserError(f"{self.settings.where('use_cat')}: plug-ins on this algorithm need it to be true")
        if self.traits.one_call and lay_out is not None:
            labelled = self.settings.batch_size // self.context.processes.world
            lay_out(labelled, labelled * self.settings.uratio, domains)

    def set_hooks(self) -> None:
        for name, plugin in self.plugins.items():
            self.register_hook(PluginHook(plugin), f"plugin_{name}", "HIGHEST")
        if self.plugins:
            self.register_hook(ForgetHook(), None, "LOWEST")
        self.register_hook(GuardHook(), None, "HIGHEST")
        self.register_hook(UpdateHook(), "ParamUpdateHook", "HIGHEST")
        self.register_hook(EMAHook(), None, "HIGH")
        self.register_hook(EvaluationHook(), None, "HIGH")
        if self.context.folder is not None:
            self.register_hook(checkpoint.CheckpointHook(), None, "HIGH")
        self.register_hook(PositionHook(), None, "NORMAL")
        self.register_hook(TrackHook(), None, "NORMAL")
        if self.context.processes.is_main:
            self.register_hook(ProgressHook(), None, "LOW")
            if self.settings.use_wandb:
                self.register_hook(WANDBHook(), None, "LOW")
            if self.settings.use_aim:
                self.register_hook(AimHook(), None, "LOW")
        self.register_hook(StopHook(), None, "LOWEST")
        for hook in self._hooks:
            _drop_double_precision(hook)

    # --- what USB asks for while it trains ------------------------------------------------------------------

    def process_batch(self, input_args: Any = None, **batch: Any) -> dict[str, Any]:
        names = input_args or signature(self.train_step).parameters
        on_device = {
            name: to_device(value, self.device, self.settings.channels_last)
            for name, value in batch.items()
            if name in names or (self.plugins and name in ("d_lb", "d_ulb"))
        }
        if self.plugins:
            self.observer.batch = {name: on_device[name] for name in ("y_lb", "d_lb", "d_ulb") if name in on_device}
        return {name: value for name, value in on_device.items() if name in names}

    def call_hook(self, fn_name: str, hook_name: str | None = None, *args: Any, **kwargs: Any) -> Any:
        """USB's, and the plug-ins get to see the base's confidences and mask."""
        result = super().call_hook(fn_name, hook_name, *args, **kwargs)
        if fn_name == "masking" and self.plugins:
            self.observer.see_masking(kwargs, result)
        return result

    def evaluate(self, eval_dest: str = "eval", out_key: str = "logits", return_logits: bool = False) -> dict[str, Any]:
        """USB's evaluation. ``eval`` means the held-out source images: nothing is chosen on the target."""
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

    # --- stop and go ----------------------------------------------------------------------------------------

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Within this context Ctrl-C and SIGTERM end the run after the current step; a second Ctrl-C ends it at once.

        A second SIGTERM does not: cluster schedulers send several before they kill.
        """

        def ask(number: int, _: Any) -> None:
            if self._stop.is_set() and number == signal.SIGINT:
                signal.default_int_handler(number, None)
            self.request_stop()

        before = {name: signal.signal(name, ask) for name in (signal.SIGINT, signal.SIGTERM)}
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
        """Everything needed to go on after ``iteration`` steps as if nothing had happened."""
        return {
            "iteration": iteration,
            "seconds": self.seconds_before + time.monotonic() - self.started,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.loss_scaler.state_dict(),
            "ema": None if self.ema is None else dict(self.ema.shadow),
            "best": [self.best_eval_acc, self.best_it],
            "algorithm": checkpoint.plain_state(self._own_attributes()),
            "hooks": {name: checkpoint.plain_state(vars(hook)) for name, hook in self.hooks_dict.items()},
            "random": self.context.processes.gather(checkpoint.random_state(self.device)),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up ``state``; :meth:`train` then goes on from there."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.loss_scaler.load_state_dict(state["scaler"])
        if self.ema is not None:
            for name, value in state["ema"].items():
                self.ema.shadow[name].copy_(value)
        self.best_eval_acc, self.best_it = state["best"]
        checkpoint.restore_plain_state(self, state["algorithm"], self.device)
        for name in state["hooks"].keys() & self.hooks_dict.keys():
            checkpoint.restore_plain_state(self.hooks_dict[name], state["hooks"][name], self.device)
        self.it = state["iteration"]
        self.start_epoch = self.it // self.num_iter_per_epoch
        self.seconds_before = state["seconds"]
        states = state["random"]
        if len(states) == self.context.processes.world:
            checkpoint.restore_random_state(states[self.context.processes.rank], self.device)

    def save_checkpoint(self, iteration: int) -> None:
        assert self.context.folder is not None
        state = self.state(iteration)
        if self.context.processes.is_main:
            checkpoint.save(self.context.folder.path, state)
        self.context.processes.wait()

    def _own_attributes(self) -> dict[str, Any]:
        """What the algorithm itself keeps: everything but what USB's and our base set up."""
        ours = {"epoch", "device", "num_iter_per_epoch"}
        return {k: v for k, v in vars(self).items() if k not in self._usb_names and k not in ours}


def _drop_double_precision(hook: Any) -> None:
    """USB's distribution alignment keeps float64 from numpy, which MPS does not have."""
    for name, value in vars(hook).items():
        if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            setattr(hook, name, value.float())
