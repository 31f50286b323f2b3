"""CUDA's rules of autocast for tensors on the CPU.

Autocast on CUDA computes many more operations in float32 than autocast on a CPU, such as exponentials, softmax, sums
and norms, so their results have other types. The lists are those of torch's documentation of automatic mixed precision.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_IN_FLOAT32 = (
    *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log1p", "log2", "reciprocal", "rsqrt", "sinh"),
    *("tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "softplus", "layer_norm", "group_norm", "renorm"),
    *("norm.Scalar", "norm.ScalarOpt_dim", "frobenius_norm.dim", "cosine_similarity", "dist", "cdist", "logsumexp"),
    *("cosine_embedding_loss", "nll_loss", "nll_loss2d", "l1_loss", "smooth_l1_loss", "huber_loss", "mse_loss"),
    *("kl_div", "margin_ranking_loss", "multi_margin_loss", "binary_cross_entropy_with_logits"),
)
_WITH_A_DTYPE = (
    *("prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum", "sum", "sum.dim_IntList"),
    "linalg_vector_norm",
)
"""These take the type of the result as an argument."""
_IN_THE_WIDEST = ("addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add")
_KEY = "AutocastCPU"


@contextmanager
def cuda_autocast() -> Iterator[None]:
    """Within this context, autocast on the CPU follows CUDA's rules."""
    library = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a CPU has rules for some of them, which are replaced
            for names, cast in ((_IN_FLOAT32, _to_float32), (_WITH_A_DTYPE, _to_dtype), (_IN_THE_WIDEST, _to_widest)):
                for name in names:
                    library.impl(name, _rule(name, cast), _KEY)
        yield
    finally:
        library._destroy()


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


def _rule(name: str, cast: Callable[[Any, Any], Arguments]) -> Callable[..., Any]:
    base, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, base), overload or "default")
    autocast = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, _KEY))

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(autocast):
            args, kwargs = cast(args, kwargs)
            return operation(*args, **kwargs)

    return run


def _is_half(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.bfloat16, torch.float16)


def _to_float32(args: Any, kwargs: Any) -> Arguments:
    cast: Arguments = tree_map(lambda value: value.float() if _is_half(value) else value, (args, kwargs))
    return cast


def _to_dtype(args: Any, kwargs: Any) -> Arguments:
    is_given = any(isinstance(value, torch.dtype) for value in tree_leaves((args, kwargs)))
    return args, kwargs if is_given or not _is_half(args[0]) else {**kwargs, "dtype": torch.float32}


def _to_widest(args: Any, kwargs: Any) -> Arguments:
    types = {value.dtype for value in tree_leaves((args, kwargs)) if isinstance(value, torch.Tensor)}
    return _to_float32(args, kwargs) if torch.float32 in types else (args, kwargs)
