"""Run by test_processes.py: one step; writes the batch, and the gradient the optimizer would see."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from semilearn_ext import distributed, training
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import read_resolved


def main(config: str, out: str, mode: str = "share") -> None:
    settings = read_resolved(Path(config))
    group = distributed.ProcessGroup() if mode == "joint" else training.join_processes(settings)
    algorithm = training.build(make_context(settings, group=group))
    # In float64, so that batch norm and ReLU do not blow rounding errors up.
    algorithm.model.double()
    gradient: dict[str, torch.Tensor] = {}

    def keep(*_: Any) -> None:
        gradient.update({name: p.grad.clone() for name, p in algorithm.model.named_parameters()})

    algorithm.optimizer.register_step_pre_hook(keep)
    batch = joint_batch(Path(out)) if mode == "joint" else own_batch(algorithm)
    algorithm.step(**{name: value.double() if value.is_floating_point() else value for name, value in batch.items()})
    algorithm.call_hook("after_train_step", "ParamUpdateHook")
    name = "joint" if mode == "joint" else f"rank{group.rank}"
    content = {"batch": batch, "gradient": gradient, "unsup_loss": algorithm.log_dict["train/unsup_loss"]}
    torch.save(content, Path(out) / f"{name}.pt")
    distributed.destroy()


def own_batch(algorithm: Any) -> dict[str, torch.Tensor]:
    labelled, unlabelled = (next(iter(algorithm.loader_dict[name])) for name in ("train_lb", "train_ulb"))
    return {**labelled, **unlabelled}


def joint_batch(out: Path) -> dict[str, torch.Tensor]:
    shares = [torch.load(out / f"rank{rank}.pt", weights_only=True)["batch"] for rank in range(2)]
    return {name: torch.cat([share[name] for share in shares]) for name in shares[0]}


if __name__ == "__main__":
    main(*sys.argv[1:])
