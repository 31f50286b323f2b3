"""Time and memory of UPC and SC, compared with a direct implementation of the formulas.

The direct implementation (``naive_loss``, written for this comparison) compares all pairs of candidate sets class by
class, in a boolean (V, V, C) tensor, and weights the proxy of every candidate for every view, in a (V, C, D) tensor in
the forward pass and another one in the backward pass. Both implementations compute the released form of the loss,
forward and backward, in float32.

Time is the minimum over many runs, which alternate between the two so that other load on the machine affects both. With
more threads (``OMP_NUM_THREADS``) than free cores, threads wait for each other and the times are not meaningful.

Memory is the peak of allocated bytes above those at the start, computed from every allocation and release that torch's
allocator reports to the profiler. Unlike the sizes of the operations' outputs, it includes the workspace of kernels;
unlike the resident size of the process, it does not depend on the allocator's cache. It is measured in a separate run.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from semilearn_ext.losses import upcsc_loss
from semilearn_ext.losses.upcsc import REFERENCE_FLOOR

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
MEMORY_LIMIT = 6e9


@dataclass(frozen=True)
class Cost:
    seconds: float
    extra_bytes: float


def naive_loss(z: Tensor, w: Tensor, prob: Tensor, confident: Tensor) -> Tensor:
    """UPC + SC in the released form, implemented directly, without loops."""
    label, candidate = prob.argmax(1), prob > 1 / prob.shape[1]
    possible = torch.where(confident[:, None], F.one_hot(label, prob.shape[1]).bool(), candidate)
    negative = ~(possible[:, None, :] & possible[None, :, :]).any(2)
    surrogate = ((candidate * prob)[:, :, None] * w[None, :, :]).sum(1)
    positive = (z * torch.where(confident[:, None], w[label], surrogate)).sum(1).exp()
    similarity = z @ z.T
    negative = negative & (similarity >= REFERENCE_FLOOR) & ~torch.eye(len(z), dtype=torch.bool)
    return -torch.log(positive / (positive + (similarity.exp() * negative).sum(1))).mean()


def fast_loss(z: Tensor, w: Tensor, prob: Tensor, confident: Tensor) -> Tensor:
    out = upcsc_loss(z, w, prob, confident, loss_form="reference")
    return out.upc + out.sc


def naive_bytes(n_views: int, n_classes: int, dim: int) -> int:
    """A lower bound on the memory of ``naive_loss``: the larger of the pairwise booleans and the weighted proxies."""
    return max(n_views * n_views * n_classes, 4 * n_views * n_classes * dim)


def make_batch(n_views: int, n_classes: int, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A random batch: half of the views are confident, and the others have a few candidates, as in training."""
    generator = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(n_views, dim, generator=generator)).requires_grad_()
    w = F.normalize(torch.randn(n_classes, dim, generator=generator)).requires_grad_()
    prob = torch.softmax(4 * torch.randn(n_views, n_classes, generator=generator), 1)
    return z, w, prob, torch.arange(n_views) % 2 == 0


def run(loss: Loss, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(*batch), batch[:2])


def peak_extra_bytes(work: Callable[[], object]) -> int:
    """Peak of allocated bytes during ``work`` above those at its start."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
            work()
        profiler.export_chrome_trace(str(trace))
        events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("name") == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda event: event["ts"]):
        live += event["args"]["Bytes"]
        peak = max(peak, live)
    return peak


def measure(losses: Iterable[Loss], batch: tuple[Tensor, Tensor, Tensor, Tensor], seconds: float) -> list[Cost]:
    """Alternate between the losses for ``seconds``, for at least three rounds of ``seconds / 10`` per loss."""
    losses = list(losses)
    memory = [peak_extra_bytes(partial(run, loss, batch)) for loss in losses]
    best = [float("inf")] * len(losses)
    end, rounds = time.perf_counter() + seconds, 0
    while rounds < 3 or time.perf_counter() < end:
        for index, loss in enumerate(losses):
            best[index] = min(best[index], best_time(partial(run, loss, batch), seconds / 10))
        rounds += 1
    return [Cost(*costs) for costs in zip(best, memory, strict=True)]


def best_time(work: Callable[[], object], seconds: float) -> float:
    best, end = float("inf"), time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        work()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= end:
            return best


def report_row(n_views: int, n_classes: int, dim: int, seconds: float) -> str:
    batch = make_batch(n_views, n_classes, dim)
    fits = naive_bytes(n_views, n_classes, dim) <= MEMORY_LIMIT
    fast, *others = measure([fast_loss, naive_loss] if fits else [fast_loss], batch, seconds)
    cells = [f"{n_views:5d} {n_classes:4d} {1000 * fast.seconds:10.2f} {fast.extra_bytes / 1e6:9.1f}"]
    if others:
        naive = others[0]
        cells.append(f"{1000 * naive.seconds:10.2f} {naive.extra_bytes / 1e6:9.1f}")
        cells.append(f"{naive.seconds / fast.seconds:8.1f} {naive.extra_bytes / fast.extra_bytes:8.1f}")
    else:
        cells.append(f"{'-':>10} {'-':>9} {'-':>8} {'-':>8}")
    return " ".join(cells)


def main(
    views: Iterable[int] = (96, 768, 3072), classes: Iterable[int] = (7, 126, 345), dim: int = 512, seconds: float = 3.0
) -> str:
    """Return the report, with one row per number of views and classes."""
    run(fast_loss, make_batch(8, 3, dim))  # warm-up
    return "\n".join(
        [
            f"UPC + SC, forward and backward, {dim} features, float32, CPU, {torch.get_num_threads()} threads;",
            f"'direct' builds (V, V, C) and (V, C, D) tensors; '-' where they need over {MEMORY_LIMIT / 1e9:.0f} GB",
            f"{'':10} {'semilearn_ext':>20} {'direct':>20} {'ratio':>17}",
            f"{'V':>5} {'C':>4} {'ms':>10} {'MB':>9} {'ms':>10} {'MB':>9} {'time':>8} {'memory':>8}",
            *(report_row(n_views, n_classes, dim, seconds) for n_views in views for n_classes in classes),
        ]
    )


if __name__ == "__main__":
    print(main())
