"""A pretend CUDA device, for machines that have none.

Its tensors hold real values on the CPU, but they report ``cuda:0`` as their device and obey CUDA's rules: they cannot
be converted to numpy, they cannot be combined with tensors on the CPU in an operation, their random numbers come from
a separate generator, asynchronous copies need pinned memory, and autocast computes the same operations in float32.
Everything that would make the host wait for a GPU is recorded with the line of code that caused it.

    def test_a_step(pretend_cuda):
        algorithm = build(tiny(device="cuda"))
        with pretend_cuda.counted() as waits:
            algorithm.step(**batch)
        assert not waits

It does not simulate speed, memory, or the rounding of CUDA's kernels.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.nn.utils import clip_grad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cuda_autocast import cuda_autocast

DEVICE = torch.device("cuda", 0)
READS_BACK = {"_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim", "equal"}
"""Operations whose result, or its size, the host has to know before it continues."""
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "_unsafe_index_put"}
MEMORY = 8 * 2**30


class Wait(NamedTuple):
    """What the host waited for, and the line of USB or of this package that caused it."""

    kind: str
    place: str


class PretendTensor(torch.Tensor):
    """A tensor on the pretend device. ``values`` is an ordinary tensor with the same content."""

    values: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> PretendTensor:
        tensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, values.shape, strides=values.stride(), storage_offset=values.storage_offset(), dtype=values.dtype
        )
        tensor.values = values
        return tensor  # type: ignore[no-any-return]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    device = property(lambda self: DEVICE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return self.detach()

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        if not isinstance(other, PretendTensor):
            raise RuntimeError("data on the CPU cannot replace data on cuda:0")
        self.values = other.values

    def numpy(self, **_: Any) -> Any:  # type: ignore[override]
        raise TypeError("can't convert cuda:0 device type tensor to numpy; use Tensor.cpu() first")

    __array__ = numpy  # type: ignore[assignment]

    def tolist(self) -> Any:
        _current().note("tolist")
        return self.values.tolist()

    def data_ptr(self) -> int:
        return self.values.data_ptr()

    def is_pinned(self, *_: Any) -> bool:
        return False

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.values!r} on the pretend cuda:0"

    def __deepcopy__(self, memo: dict[int, Any]) -> PretendTensor:
        copied = memo[id(self)] = PretendTensor(self.values.detach().clone()).requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            copied._is_param = True
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        _current().note("save")
        return self.values.detach().__reduce_ex__(protocol)


class PretendCuda:
    """The device: its random number generator, and what the host has waited for."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(0)
        self.bf16 = True
        self.sync_debug_mode = 0
        """As in torch: 0 ignores host waits, 1 warns about them, and 2 makes them errors."""
        self.waits: Counter[Wait] = Counter()

    @contextmanager
    def counted(self) -> Iterator[Counter[Wait]]:
        """The waits that occur within this context."""
        before, self.waits = self.waits, Counter()
        try:
            yield self.waits
        finally:
            self.waits = before + self.waits

    def note(self, kind: str) -> None:
        self.waits[Wait(kind, _place())] += 1
        if kind == "synchronize":  # the host is meant to wait
            return
        message = "called a synchronizing CUDA operation"
        if self.sync_debug_mode == 2:
            raise RuntimeError(message)
        if self.sync_debug_mode == 1:
            frame = _calling_frame()
            warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno)

    def set_sync_debug_mode(self, mode: int | str) -> None:
        self.sync_debug_mode = mode if isinstance(mode, int) else ("default", "warn", "error").index(mode)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within this context, torch's own generator has the state of the device's generator."""
        host = torch.default_generator.get_state()
        torch.default_generator.set_state(self.generator.get_state())
        try:
            yield
        finally:
            self.generator.set_state(torch.default_generator.get_state())
            torch.default_generator.set_state(host)


_devices: list[PretendCuda] = []


def _current() -> PretendCuda:
    return _devices[-1]


def on_device(values: torch.Tensor) -> PretendTensor:
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return PretendTensor(values.detach())


def _calling_frame() -> Any:
    """The innermost frame of USB or of this package; that of the test if there is none."""
    frame: Any = sys._getframe(2)
    while frame.f_back is not None and not {"semilearn", "semilearn_ext"} & set(Path(frame.f_code.co_filename).parts):
        frame = frame.f_back
    return frame


def _place() -> str:
    """``semilearn/algorithms/fixmatch/fixmatch.py:112`` of USB, or a file and function of this package."""
    frame = _calling_frame()
    parts = Path(frame.f_code.co_filename).parts
    if "semilearn" in parts:
        return "/".join(parts[parts.index("semilearn") :]) + f":{frame.f_lineno}"
    if "semilearn_ext" in parts:
        inside = len(parts) - parts[::-1].index("semilearn_ext") - 1
        return "/".join(parts[inside:]) + f" {frame.f_code.co_name}"
    return "elsewhere"


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation with an argument or a result on the device."""
    name = func._schema.name.partition("::")[2]
    _check_devices(name, [leaf for leaf in _leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)])
    _note_waits(name, args, kwargs)
    inner_args, inner_kwargs = _mapped(_values, args), _mapped(_values, kwargs)
    if torch.Tag.nondeterministic_seeded in func.tags:
        with _current().drawing():
            result = func(*inner_args, **inner_kwargs)
    else:
        result = func(*inner_args, **inner_kwargs)
    written = func._schema.returns and func._schema.returns[0].alias_info
    if written and written.is_write:
        return kwargs["out"] if "out" in kwargs else args[0]
    if name == "copy_":
        return args[0]
    return _mapped(lambda leaf: PretendTensor(leaf) if type(leaf) is torch.Tensor else leaf, result)


def _mapped(convert: Callable[[Any], Any], value: Any) -> Any:
    """``value`` with everything in its lists, tuples and dicts converted, faster than by torch's ``tree_map``."""
    if isinstance(value, dict):
        return {name: _mapped(convert, entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_mapped(convert, entry) for entry in value])
    return convert(value)


def _leaves(value: Any) -> list[Any]:
    leaves: list[Any] = []
    _mapped(leaves.append, value)
    return leaves


def _values(leaf: Any) -> Any:
    return leaf.values if isinstance(leaf, PretendTensor) else leaf


def _check_devices(name: str, tensors: list[torch.Tensor]) -> None:
    # A number may come from the CPU; an index is copied to the device.
    plain = [tensor for tensor in tensors if not isinstance(tensor, PretendTensor) and tensor.ndim]
    if plain and len(plain) < len(tensors) and name not in {*INDEXES, "copy_", "_foreach_copy_"}:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({name})"
        )


def _note_waits(name: str, args: Any, kwargs: Any) -> None:
    device = _current()
    if name in READS_BACK or (name == "repeat_interleave" and kwargs.get("output_size") is None):
        device.note({"_local_scalar_dense": "item"}.get(name, name))
    elif name in INDEXES:
        indices = [index for index in args[1] if index is not None]
        is_number = name != "index" and len(args) > 2 and args[2].numel() == 1
        for index in indices:
            if index.dtype in (torch.bool, torch.uint8):
                if not (is_number and len(indices) == 1):
                    device.note("index by a mask")
            elif not isinstance(index, PretendTensor):
                device.note("index from the CPU")
    elif name == "copy_" and isinstance(args[0], PretendTensor) != isinstance(args[1], PretendTensor):
        non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
        _note_copy(args[1], non_blocking)


def _note_copy(source: torch.Tensor, non_blocking: bool) -> None:
    """A copy between the host and the device."""
    if isinstance(source, PretendTensor):
        _current().note("copy to the CPU")
    elif not non_blocking:
        _current().note("copy to the device")
    elif not _is_pinned(source):
        raise RuntimeError("a non-blocking copy from memory that is not pinned: it may be changed before it is copied")


def _is_pinned(tensor: torch.Tensor) -> bool:
    return getattr(tensor.untyped_storage(), "pretend_pinned", False)


class _Factories(TorchDispatchMode):
    """Tensors that an operation creates internally, without an argument on the device, are on the device too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(leaf, torch.Tensor) for leaf in _leaves((args, kwargs))):
            return func(*args, **kwargs) if PretendTensor not in types else _run(func, args, kwargs)
        return _run(func, args, kwargs)


class _Functions(TorchFunctionMode):
    """Intercepts every call that names a device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in _CONVERSIONS:
            return _CONVERSIONS[func](*args, **kwargs)
        if _is_cuda(kwargs.get("device")):
            return _created(func, args, kwargs)
        if PretendTensor in types or any(isinstance(leaf, PretendTensor) for leaf in _leaves((args, kwargs))):
            with _Factories():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def _is_cuda(device: Any) -> bool:
    if isinstance(device, int) and not isinstance(device, bool):
        return True
    return device is not None and torch.device(device).type == "cuda"


def _created(func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """``torch.zeros(3, device="cuda")`` and the like."""
    del kwargs["device"]
    if kwargs.get("generator") is not None:
        raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
    if func in (torch.tensor, torch.as_tensor, torch.asarray):
        data, *rest = args
        if isinstance(data, PretendTensor):
            return data.to(kwargs["dtype"]) if "dtype" in kwargs else data
        _current().note("copy to the device")
        return on_device(func(data, *rest, **kwargs).clone())
    requires_grad = kwargs.pop("requires_grad", False)
    with _Factories():
        created = func(*args, **kwargs)
    created = created if isinstance(created, PretendTensor) else on_device(created)
    return created.requires_grad_(requires_grad)


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    copy = kwargs.pop("copy", False)
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    options = {} if memory_format is None else {"memory_format": memory_format}
    if device is None or (device.type == "cuda") == isinstance(tensor, PretendTensor):
        return torch.Tensor.to(tensor, dtype=dtype or tensor.dtype, copy=copy, **options)
    return _moved(tensor, non_blocking, lambda values: values.to(dtype=dtype or values.dtype, copy=True, **options))


def _moved(
    tensor: torch.Tensor, non_blocking: bool, copied: Callable[[torch.Tensor], torch.Tensor] = torch.clone
) -> torch.Tensor:
    _note_copy(tensor, non_blocking)
    to_cpu = isinstance(tensor, PretendTensor)
    return _Move.apply(tensor, copied, to_cpu)  # type: ignore[no-any-return]


class _Move(torch.autograd.Function):
    """A copy between host and device, through which gradients flow back."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, copied: Callable[[torch.Tensor], torch.Tensor], to_cpu: bool) -> Any:
        ctx.to_cpu = to_cpu
        values = copied(_values(tensor))
        return values if to_cpu else PretendTensor(values)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (gradient,) = grads
        return PretendTensor(gradient) if ctx.to_cpu else _values(gradient), None, None


def _pinned(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    if isinstance(tensor, PretendTensor):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor', only dense CPU tensors can be pinned")
    pinned = tensor if _is_pinned(tensor) else tensor.detach().clone(memory_format=torch.preserve_format)
    pinned.untyped_storage().pretend_pinned = True  # type: ignore[attr-defined]
    return pinned


_CONVERSIONS: dict[Any, Callable[..., Any]] = {
    torch.Tensor.to: _to,
    torch.Tensor.cuda: lambda tensor, *_, non_blocking=False: _to(tensor, DEVICE, non_blocking=non_blocking),
    torch.Tensor.cpu: lambda tensor, *_: _to(tensor, "cpu"),
    torch.Tensor.pin_memory: _pinned,
    torch.Tensor.is_pinned: lambda tensor, *_: _is_pinned(tensor),
}


class _Autocast(torch.autocast):
    """Autocast for the device is that of the CPU, with CUDA's rules."""

    def __init__(self, device_type: str, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu" if device_type == "cuda" else device_type, *args, **kwargs)


_GROUP = "_group_tensors_by_device_and_dtype"


def _grouped(group: Callable[..., Any]) -> Callable[..., Any]:
    """torch groups gradients by the device of the wrapped values, which is the CPU."""

    def by_device(lists: Any, *args: Any) -> Any:
        on = DEVICE if any(isinstance(leaf, PretendTensor) for leaf in _leaves(lists)) else torch.device("cpu")
        return {(on, dtype): members for (_, dtype), members in group(lists, *args).items()}

    return by_device


@contextmanager
def pretend() -> Iterator[PretendCuda]:
    """Within this context torch has one CUDA device."""
    device = PretendCuda()
    answers: dict[str, Callable[..., Any]] = {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "set_device": lambda _: None,
        "current_device": lambda: 0,
        "get_device_name": lambda _=None: "pretend",
        "get_device_capability": lambda _=None: (8, 6) if device.bf16 else (7, 0),
        "get_arch_list": lambda: ["sm_70", "sm_80", "compute_80"],
        "is_bf16_supported": lambda including_emulation=True: device.bf16,
        "mem_get_info": lambda _=None: (MEMORY, MEMORY),
        "synchronize": lambda _=None: device.note("synchronize"),
        "get_sync_debug_mode": lambda: device.sync_debug_mode,
        "set_sync_debug_mode": device.set_sync_debug_mode,
        "get_rng_state": lambda _=None: device.generator.get_state(),
        "set_rng_state": lambda state, _=None: device.generator.set_state(state),
        "manual_seed_all": lambda seed: device.generator.manual_seed(seed),
        "is_current_stream_capturing": lambda: False,
    }
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch, "autocast", _Autocast))
        stack.enter_context(cuda_autocast())
        stack.enter_context(mock.patch.object(clip_grad, _GROUP, _grouped(getattr(clip_grad, _GROUP))))
        stack.enter_context(torch.backends.cudnn.flags(benchmark=False, allow_tf32=True))
        stack.callback(torch.__future__.set_overwrite_module_params_on_conversion, overwrites)
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        _devices.append(device)
        stack.callback(_devices.pop)
        stack.enter_context(_Functions())
        yield device
