"""Every method on an Apple GPU, as far as it can be tested without one: torch has a kernel for each of its operations.

Without one, torch stops with an error unless PYTORCH_ENABLE_MPS_FALLBACK is set. Apple's GPUs do not support float64.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchgen
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.evaluation import measure
from semilearn_ext.settings import Settings
from tests.engine.test_on_pretend_cuda import is_trained
from tests.every_method import METHODS, active_loss

Tinier = Callable[..., Settings]


class Operations(TorchDispatchMode):
    """Collects the operations that torch runs, and the types of their tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._schema.name + (f".{func._schema.overload_name}" if func._schema.overload_name else ""))
        self.dtypes |= {leaf.dtype for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)}
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def without_kernel() -> Callable[[Operations], list[str]]:
    """The operations for which torch has no kernel on Apple's GPUs, according to its own list of operations."""
    text = (Path(torchgen.__path__[0]) / "packaged" / "ATen" / "native" / "native_functions.yaml").read_text()
    declared = {block.partition("(")[0]: block for block in text.split("\n- func: ")[1:]}

    def has_kernel(name: str) -> bool:
        block = declared[name]
        keys = ", ".join(re.findall(r"^    ([\w, ]+):", block, re.MULTILINE)).split(", ")
        delegate = re.search(r"^  structured_delegate: (\S+)", block, re.MULTILINE)
        if "MPS" in keys or any(key.startswith("Composite") for key in keys) or "  dispatch:" not in block:
            return delegate is None or "MPS" in keys or has_kernel(delegate.group(1))
        return delegate is not None and has_kernel(delegate.group(1))

    def missing(operations: Operations) -> list[str]:
        names = sorted(name.removeprefix("aten::") for name in operations.names if name.startswith("aten::"))
        return [name for name in names if not has_kernel(name)]

    return missing


def test_an_operation_without_a_kernel_is_found(without_kernel: Callable[[Operations], list[str]]) -> None:
    with Operations() as operations:
        torch.linalg.qr(torch.eye(2).double())
    assert without_kernel(operations) == ["linalg_qr"]
    assert torch.float64 in operations.dtypes


@pytest.mark.parametrize(("name", "step"), [pair for pair in METHODS if is_trained(pair[0])])
def test_every_operation_has_a_kernel(
    name: str, step: str, tinier: Tinier, without_kernel: Callable[[Operations], list[str]]
) -> None:
    settings = tinier(views_on="device", average="both", average_start=0.0, **active_loss(name, step))
    algorithm: Any = training.build(make_context(settings))
    algorithm.rho_init = 1.0  # Dash sets it in its warm-up
    algorithm.it = algorithm.epoch = 0
    prepared = [maker.prepare((0, 0)) for maker in algorithm.dataset_dict.values()]  # on the host
    with Operations() as training_step:
        batch = {
            key: value
            for maker, part in zip(algorithm.dataset_dict.values(), prepared, strict=True)
            for key, value in maker.finish(part).items()
        }
        algorithm.call_hook("before_train_epoch")
        algorithm.step(**batch)
        for hook in ("ParamUpdateHook", "EMAHook", "AveragesHook"):
            algorithm.call_hook("after_train_step", hook)
    assert without_kernel(training_step) == []
    assert torch.float64 not in training_step.dtypes
    with Operations() as evaluation:
        measure(algorithm)
    assert without_kernel(evaluation) == []
