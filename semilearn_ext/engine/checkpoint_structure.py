"""Check that the state in a checkpoint has the structure that a run would save: the same names, types and shapes.

torch checks the names and shapes of a network's weights when it loads them, but neither the optimizer, whose values
would raise an error in a later step, nor numbers and evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from semilearn_ext.engine.averages import averaged_tensors
from semilearn_ext.runs.details_file import check_details
from semilearn_ext.runs.result import SOURCE_VAL, TARGET

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase

_MEASURED = ("iteration", "epoch", "seconds", TARGET, SOURCE_VAL)
"""Numbers that every evaluation has."""


def check_structure(state: Mapping[str, Any], algorithm: SSDGBase) -> None:
    """Raise a ValueError for a state that ``algorithm``, which has just been built, cannot continue from."""
    _check_like(state["seconds"], 0.0, "seconds")
    _check_like(state["best"], [algorithm.best_eval_acc, algorithm.best_it], "best")
    _check_like(state["scheduler"], algorithm.scheduler.state_dict(), "scheduler")
    _check_like(state["optimizer"]["param_groups"], algorithm.optimizer.state_dict()["param_groups"], "optimizer")
    _check_averages(state["averages"], averaged_tensors(algorithm.model))
    for record in _list(state["metrics"], "metrics"):
        _check_evaluation(record)
    if state["details"] is not None:
        check_details(state["details"], "details")


def check_optimizer(optimizer: torch.optim.Optimizer) -> None:
    """Raise a ValueError if a tensor that was loaded into the optimizer does not fit its parameter, or is missing."""
    if len({frozenset(values) for values in optimizer.state.values()}) > 1:
        raise ValueError("the optimizer's state is incomplete")
    for parameter, values in optimizer.state.items():
        for name, value in values.items():
            if value is None and name == "momentum_buffer":  # before the first step with momentum
                continue
            shape = () if name == "step" else parameter.shape
            if not _is_dense(value) or not value.is_floating_point() or value.shape != shape:
                raise ValueError(f"the optimizer's {name} is not a tensor of the shape of the weights")
            if name == "step" and not value >= 0:
                raise ValueError("the optimizer's step is not a count")


def check_plain(saved: object, known: object, name: str) -> None:
    """Raise a ValueError if an attribute with the value ``known`` cannot have been ``saved`` with this value.

    A number may become a tensor without dimensions, or the other way round, and None anything that is saved.
    """
    if saved is None or type(saved) in (bool, int, float):
        if (saved is None and known is not None) or (isinstance(known, torch.Tensor) and known.dim()):
            raise ValueError(f"{name} is not a tensor")
    elif not _is_dense(saved):
        raise ValueError(f"{name} is neither a tensor nor a number")
    elif known is not None:
        shape = known.shape if isinstance(known, torch.Tensor) else ()
        if saved.shape != shape:
            raise ValueError(f"{name} has the shape {tuple(saved.shape)} instead of {tuple(shape)}")
        if isinstance(known, torch.Tensor) and saved.is_floating_point() != known.is_floating_point():
            raise ValueError(f"{name} has the type {saved.dtype} instead of {known.dtype}")


def _check_like(saved: object, known: object, where: str) -> None:
    if isinstance(known, Mapping):
        if not isinstance(saved, Mapping) or not saved.keys() <= known.keys():
            raise ValueError(f"{where} has other names")
        for name, value in saved.items():
            _check_like(value, known[name], f"{where}: {name}")
    elif isinstance(known, list | tuple):
        values = _list(saved, where)
        if len(values) != len(known):
            raise ValueError(f"{where} has {len(values)} values instead of {len(known)}")
        for value, known_value in zip(values, known, strict=True):
            _check_like(value, known_value, where)
    elif type(known) in (int, float):
        if not _is_number(saved):
            raise ValueError(f"{where} is not a number")
    elif type(saved) is not type(known):
        raise ValueError(f"{where} is not of the type {type(known).__name__}")


def _check_averages(averages: Mapping[str, Any], weights: list[torch.Tensor]) -> None:
    for name, average in averages.items():
        tensors, updates = _list(average["tensors"], name), average["updates"]
        if type(updates) is not int or updates < 0:
            raise ValueError(f"the number of updates of {name} is not a count")
        shapes = [(value.shape, value.dtype) for value in weights] if updates else []
        if [(value.shape, value.dtype) for value in tensors if _is_dense(value)] != shapes:
            raise ValueError(f"{name} does not fit the weights")


def _check_evaluation(record: object) -> None:
    if not isinstance(record, dict) or not all(isinstance(name, str) for name in record):
        raise ValueError("an evaluation has no names")
    if not all(value is None or type(value) in (int, float) for value in record.values()):
        raise ValueError("an evaluation contains other values than numbers")
    if not all(_is_number(record.get(name)) for name in _MEASURED):
        raise ValueError(f"an evaluation lacks one of {', '.join(_MEASURED)}")


def _list(value: object, where: str) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"{where} is not a list")
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and type(value) in (int, float) and math.isfinite(value)


def _is_dense(value: object) -> TypeGuard[torch.Tensor]:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided
