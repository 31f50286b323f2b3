"""What UPC and SC cost, beside the formula written out.

Written out (``naive_loss``, ours, not the authors' file) means: all pairs of candidate sets compared class by class,
a (V, V, C) tensor of booleans, and every candidate's proxy weighted for every view, a (V, C, D) tensor in forward and
another in backward. Both compute the released form, forward and backward, in float32.

Time is the best of many runs, the two taking turns so that other work on the machine hits both. With more threads
(``OMP_NUM_THREADS``) than free cores, threads wait for each other and the times mean little.

Memory is the highest sum of live bytes over what was live before, from every allocation and release that torch's
allocator reports to its profiler: unlike the outputs of operations it includes what a kernel takes for itself, and
unlike the resident size of the process it does not depend on what the allocator keeps. It is measured in a run of
its own.
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
    """UPC + SC in the released form, in the most direct way that has no loop."""
    label, candidate = prob.argmax(1), prob > 1 / prob.shape[1]
    possible = torch.where(confident[:, None], F.one_hot(label, prob.shape[1]).bool(), candidate)
    negative = ~(possible[:, None, :] & possible[None, :, :]).any(2)
    surrogate = ((candidate * prob)[:, :, None] * w[None, :, :]).sum(1)
    positive = (z * torch.where(confident[:, None], w[label], surrogate)).sum(1).exp()
    similarity = z @ z.T
    negative = negative & (similarity >= REFERENCE_FLOOR) & ~torch.eye(len(z), dtype=torch.bool)
    return -torch.log(positive / (positive + (similarity.exp() * negative).sum(1))).mean()


def fast_loss(z: Tensor, w: Tensor, prob: Tensor, confident: Tensor) -> Tensor:
    out = upcsc_loss(z, w, prob, confident, form="reference")
    return out.upc + out.sc


def naive_bytes(n_views: int, n_classes: int, dim: int) -> int:
    """What ``naive_loss`` needs at least: the booleans of all pairs, or later the weighted proxies."""
    return max(n_views * n_views * n_classes, 4 * n_views * n_classes * dim)


def make_batch(n_views: int, n_classes: int, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Half of the views confident, the others with a few candidates, as in training."""
    generator = torch.Generator().manual_seed(0)
    z = F.normalize(torch.randn(n_views, dim, generator=generator)).requires_grad_()
    w = F.normalize(torch.randn(n_classes, dim, generator=generator)).requires_grad_()
    prob = torch.softmax(4 * torch.randn(n_views, n_classes, generator=generator), 1)
    return z, w, prob, torch.arange(n_views) % 2 == 0


def run(loss: Loss, batch: tuple[Tensor, Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss(*batch), batch[:2])


def peak_extra_bytes(work: Callable[[], object]) -> int:
    """The most bytes alive at one moment of ``work`` beyond those alive at its start."""
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
    """Three turns and more until ``seconds`` have passed; in its turn a loss runs once, or for a tenth of them."""
    losses = list(losses)
    memory = [peak_extra_bytes(partial(run, loss, batch)) for loss in losses]
    best = [float("inf")] * len(losses)
    end, turns = time.perf_counter() + seconds, 0
    while turns < 3 or time.perf_counter() < end:
        for which, loss in enumerate(losses):
            best[which] = min(best[which], best_time(partial(run, loss, batch), seconds / 10))
        turns += 1
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
    """The report: a row for every number of views and classes."""
    run(fast_loss, make_batch(8, 3, dim))  # the first call of an operation is slow
    return "\n".join(
        [
            f"UPC + SC, forward and backward, {dim}-d, float32, CPU, {torch.get_num_threads()} threads;",
            f"'written out' forms (V, V, C) and (V, C, D); - where that takes over {MEMORY_LIMIT / 1e9:.0f} GB",
            f"{'':10} {'semilearn_ext':>20} {'written out':>20} {'ratio':>17}",
            f"{'V':>5} {'C':>4} {'ms':>10} {'MB':>9} {'ms':>10} {'MB':>9} {'time':>8} {'memory':>8}",
            *(report_row(n_views, n_classes, dim, seconds) for n_views in views for n_classes in classes),
        ]
    )


if __name__ == "__main__":
    print(main())
