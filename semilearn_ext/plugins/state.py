"""The state of a plug-in outside its parameters and buffers, so that it resumes without any code of its own."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError

_SCALARS = (bool, int, float, str, type(None))
_SEQUENCES = (list, tuple, torch.Size)
_OF_MODULES = frozenset(vars(nn.Module()))
_OF_RECURRENT_LAYERS = "_flat_weight"
"""The beginning of the names under which torch's recurrent layers keep their parameters a second time."""


class _CannotBeSaved(Exception):
    def __init__(self, value: object, reason: str) -> None:
        super().__init__(reason)
        self.value = value


def collect(plugin: nn.Module, left_out: Collection[str], logs: Mapping[str, object]) -> dict[str, Any]:
    """Copies of everything that may change during training and is not in the ``state_dict``, by dotted name.

    These are the attributes of the plug-in and of the modules inside it (``bank.queue``), lists, dicts and tensors of
    their classes, buffers that are not persistent, and the numbers in ``logs``. An attribute of another type is an
    error. In inner modules, which may come from a library, this holds only for collections.
    """
    registered = {id(tensor) for tensor in (*plugin.parameters(), *plugin.buffers())}
    state: dict[str, Any] = {}
    for path, module in plugin.named_modules():
        prefix = f"{path}." if path else ""
        for name in module._non_persistent_buffers_set:
            state[prefix + name] = _copy(module._buffers[name], frozenset())
        for name, value in _of_classes(module):
            try:
                state[prefix + name] = _copy(value, registered)
            except _CannotBeSaved:  # a table of functions, for example
                continue
        for name, value in _attributes(module, () if path else left_out):
            try:
                state[prefix + name] = _copy(value, registered)
            except _CannotBeSaved as error:
                if not path or isinstance(error.value, Container):
                    raise UserError(f"{type(plugin).__name__}.{prefix}{name}: {error}") from None
    numbers = {name: value for name, value in logs.items() if isinstance(value, Tensor) or type(value) in _SCALARS}
    return {**state, "logs": _copy(numbers, frozenset())}


def restore(plugin: nn.Module, state: Mapping[str, Any], device: torch.device) -> None:
    """Set what :func:`collect` returned, with the tensors on ``device``."""
    for key, value in state.items():
        path, _, name = key.rpartition(".")
        setattr(plugin.get_submodule(path), name, _moved(value, device))


def check_head(owner: str, head: nn.Module) -> None:
    """Raise an error for a tensor of a classifier that is neither a parameter nor a buffer: it would not be saved."""
    for module in head.modules():
        names = (name for name, value in _attributes(module, ()) if isinstance(value, Tensor))
        for name in (*names, *module._non_persistent_buffers_set):
            raise UserError(
                f"plug-in {owner!r}: {type(module).__name__}.{name} would not be saved with the classifier; use "
                f"register_buffer"
            )


def _attributes(module: nn.Module, left_out: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The plain attributes of a module; of torch's own layers, only tensors."""
    of_torch = _is_torch(type(module))
    for name, value in vars(module).items():
        if name in _OF_MODULES or name in left_out or name.startswith(_OF_RECURRENT_LAYERS):
            continue
        if isinstance(value, Tensor) or not of_torch:
            yield name, value


def _of_classes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Lists, dicts and tensors of the module's classes, which its methods may change."""
    for kind in reversed(type(module).__mro__):
        if _is_torch(kind):
            continue
        for name, value in vars(kind).items():
            if isinstance(value, Tensor | list | dict) and not name.startswith("__") and name not in vars(module):
                yield name, value


def _is_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def _copy(value: Any, registered: Collection[int]) -> Any:
    """A copy of ``value`` in types that can be saved in a checkpoint, and that have the same type when it is loaded."""
    if isinstance(value, nn.Parameter):
        raise _CannotBeSaved([value], "parameters in a list or dict are not trained; use nn.ParameterList")
    if id(value) in registered:
        raise _CannotBeSaved([value], "is a second name of a buffer, which a checkpoint cannot restore; use one name")
    if isinstance(value, Tensor):
        return value.detach().clone()
    if type(value) in _SCALARS:
        return value
    if type(value) in _SEQUENCES:
        return type(value)(_copy(item, registered) for item in value)
    if type(value) is dict:
        return {_copy(key, registered): _copy(item, registered) for key, item in value.items()}
    kind = type(value).__name__
    raise _CannotBeSaved(value, f"type {kind} cannot be saved in a checkpoint; use tensors, numbers, lists or dicts")


def _moved(value: Any, device: torch.device) -> Any:
    """``value`` with its tensors on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device)
    if type(value) in (list, tuple):
        return type(value)(_moved(item, device) for item in value)
    return {key: _moved(item, device) for key, item in value.items()} if type(value) is dict else value
