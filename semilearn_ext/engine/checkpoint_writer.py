"""Write checkpoints in a thread while training continues.

The guarantees of a synchronous write remain. The thread writes a copy of the state as it was after the step, completely
or not at all. An error in the thread stops the run at the next step. A run that ends for any reason waits for the
thread first, so nothing is written after the lock on the folder has been released.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from semilearn_ext.engine import checkpoint


class CheckpointWriter:
    """Writes one checkpoint at a time. As a context manager, it waits for the last one on exit."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._pending: Future[Path] | None = None

    def save(self, folder: Path, state: dict[str, Any]) -> None:
        """Start writing ``state``, after waiting for the previous checkpoint."""
        self.wait()
        self._pending = self._pool.submit(checkpoint.save, folder, copied(state))

    def check(self) -> None:
        """Raise the error of a failed write, if any, without waiting."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Wait until the checkpoint is written; raise the error if that failed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True)
        if kind is None:
            self.wait()


def copied(state: Any) -> Any:
    """A copy of ``state`` with all tensors on the CPU, unaffected by the following steps."""
    if isinstance(state, torch.Tensor):
        return state.detach().to("cpu", copy=True)
    if isinstance(state, Mapping):
        result = type(state)((name, copied(value)) for name, value in state.items())  # type: ignore[call-arg]
        if hasattr(state, "_metadata"):  # the versions of a network's layers
            result._metadata = state._metadata  # type: ignore[attr-defined]
        return result
    if isinstance(state, list | tuple):
        return type(state)(copied(value) for value in state)
    return state
