"""The loss of a network as a function of its weights: its value, Hessian-vector products, and the largest eigenvalues
of the Hessian.

The Hessian itself is never computed. A Hessian-vector product is the gradient of (gradient · vector), summed over
batches, so memory does not grow with the number of images. The eigenvalues are computed from such products by the
Lanczos method (ARPACK in scipy). The network is called as a function of its weights and is not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from torch import Tensor, nn
from torch.func import functional_call

from semilearn_ext.errors import UserError

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]
_LANCZOS_VECTORS = 12


class Loss:
    """Mean cross-entropy of ``net(x)["logits"]`` over all batches, as a function of the weights that it depends on.

    Weights that the logits do not depend on, such as the projectors of a plug-in, are left out. The network must be in
    eval mode.

    Args:
        batches: returns the same images (N, 3, H, W) and labels (N,) each time it is called.
        dtype: the precision of all computations.
    """

    def __init__(self, net: nn.Module, batches: Batches, dtype: torch.dtype) -> None:
        self.net, self.batches, self.dtype = net, batches, dtype
        self.fixed = {name: self._cast(value) for name, value in [*net.named_parameters(), *net.named_buffers()]}
        self.count = sum(len(y) for _, y in batches())
        self.weights = self._used()

    def _cast(self, value: Tensor) -> Tensor:
        return value.detach().to(self.dtype) if value.is_floating_point() else value.detach()

    def _used(self) -> dict[str, Tensor]:
        weights = {name: self.fixed[name].clone().requires_grad_() for name, _ in self.net.named_parameters()}
        x, y = next(iter(self.batches()))
        gradients = torch.autograd.grad(self._part(weights, x[:1], y[:1]), list(weights.values()), allow_unused=True)
        pairs = zip(weights.items(), gradients, strict=True)
        return {name: value.detach() for (name, value), gradient in pairs if gradient is not None}

    @property
    def size(self) -> int:
        """The number of weights."""
        return sum(value.numel() for value in self.weights.values())

    def _part(self, weights: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        logits = functional_call(self.net, {**self.fixed, **weights}, (x.to(self.dtype),))["logits"]
        return F.cross_entropy(logits, y, reduction="sum") / self.count

    def split(self, flat: np.ndarray) -> dict[str, Tensor]:
        """Split a vector (size,) with one entry per weight into tensors with the shapes of the weights."""
        tensors, start = {}, 0
        for name, like in self.weights.items():
            part = torch.from_numpy(flat[start : start + like.numel()])
            tensors[name] = part.to(like.device, self.dtype).view_as(like)
            start += like.numel()
        return tensors

    @torch.no_grad()
    def at(self, *steps: tuple[float, dict[str, Tensor]]) -> float:
        """The loss after moving the weights by the sum of ``length * direction``."""
        weights = dict(self.weights)
        for length, direction in steps:
            weights = {name: torch.add(value, direction[name], alpha=length) for name, value in weights.items()}
        return sum(float(self._part(weights, x, y)) for x, y in self.batches())

    def hessian_times(self, flat: np.ndarray) -> np.ndarray:
        """The Hessian times a vector, (size,) -> (size,), in float64 regardless of the precision of the loss."""
        vector = list(self.split(np.asarray(flat, dtype=np.float64).ravel()).values())
        weights = {name: value.clone().requires_grad_() for name, value in self.weights.items()}
        variables = list(weights.values())
        total = [torch.zeros_like(value) for value in variables]
        for x, y in self.batches():
            gradients = torch.autograd.grad(self._part(weights, x, y), variables, create_graph=True)
            product = torch.autograd.grad(gradients, variables, vector, materialize_grads=True)
            for accumulated, part in zip(total, product, strict=True):
                accumulated += part
        return torch.cat([part.reshape(-1) for part in total]).cpu().double().numpy()


class Eigenpairs(NamedTuple):
    """The largest eigenvalues, largest first."""

    values: np.ndarray
    """(K,)."""
    vectors: np.ndarray
    """(K, size), of unit length; the entry of largest magnitude is positive."""
    residuals: np.ndarray
    """(K,) norm of H v - value * v. There is an eigenvalue of H within this distance of each value."""
    products: int
    """Number of products with the Hessian that were computed."""


def largest_eigenpairs(
    times: Callable[[np.ndarray], np.ndarray], size: int, count: int, *, tolerance: float, seed: int = 0
) -> Eigenpairs:
    """The ``count`` largest eigenvalues of a symmetric (size, size) matrix.

    Args:
        times: multiplies the matrix by a vector.
        tolerance: relative accuracy; 0 for machine precision.
    """
    calls = 0

    def counted(vector: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        return times(vector)

    operator = LinearOperator((size, size), matvec=counted, dtype=np.float64)
    start = np.random.default_rng(seed).standard_normal(size)
    try:
        values, columns = eigsh(
            operator, k=count, which="LA", v0=start, tol=tolerance, ncv=min(size, max(_LANCZOS_VECTORS, 2 * count + 1))
        )
    except ArpackNoConvergence as error:
        raise UserError(f"the eigenvalues of the Hessian did not converge after {calls} products: {error}") from None
    order = np.argsort(values)[::-1]
    values, vectors = values[order], np.ascontiguousarray(columns[:, order].T)
    for vector in vectors:
        vector *= np.sign(vector[np.abs(vector).argmax()])
    residuals = [np.linalg.norm(counted(v) - value * v) for value, v in zip(values, vectors, strict=True)]
    return Eigenpairs(values, vectors, np.array(residuals), calls)
