"""Devices and their options, as far as they can be tested without a GPU."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.data.device_images import free_memory
from semilearn_ext.distributed import ProcessGroup
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.cuda_calls import RedirectCuda
from semilearn_ext.engine.device import (
    choose_device,
    choose_precision,
    evaluation_batch,
    fast_precision,
    set_backends,
    to_device,
    unusable_apple_gpu,
    use_channels_last,
)
from semilearn_ext.errors import UserError
from semilearn_ext.nets import cnn
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from tests.every_method import batch_of
from tests.pretend_cuda import PretendCuda

Tiny = Callable[..., Settings]


def trained(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.train()
    return algorithm


def test_the_device_is_chosen_automatically() -> None:
    gpus = [kind for kind, usable in (("cuda", torch.cuda.is_available()), ("mps", _mps_works())) if usable]
    assert choose_device(settings_from()).type == [*gpus, "cpu"][0]
    assert choose_device(settings_from(device="cpu")).type == "cpu"


def _mps_works() -> bool:
    return torch.backends.mps.is_available() and not unusable_apple_gpu()


def test_an_apple_gpu_without_memory_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS in a virtual machine lists one; every tensor on it is an error."""

    def full(*_: Any, **__: Any) -> torch.Tensor:
        raise RuntimeError("MPS backend out of memory (MPS allocated: 0 bytes)\nTried to allocate 256 bytes")

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch, "ones", full)
    with pytest.warns(UserWarning, match=r"running on the cpu instead of the Apple GPU: .*out of memory .*0 bytes"):
        assert choose_device(settings_from()).type == "cpu"
    with pytest.raises(UserError, match=r"no mps device is available \(it failed to store a number .*usable: cpu"):
        choose_device(settings_from(device="mps"))
    monkeypatch.setattr(torch, "ones", lambda *_, **__: None)
    assert choose_device(settings_from()).type == "mps"


def test_several_processes_on_an_apple_gpu_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo moves no tensors of Apple's GPUs."""
    numbers = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    for name, value in {**numbers, "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("semilearn_ext.engine.device.choose_device", lambda *_: torch.device("mps"))
    with pytest.raises(UserError, match="several processes cannot share an Apple GPU; start a single process, or use"):
        training.join_processes(settings_from())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_an_unavailable_device_is_refused() -> None:
    with pytest.raises(UserError, match=r"no cuda device is available; usable: .*cpu"):
        choose_device(settings_from(device="cuda"))


def test_more_processes_than_gpus_are_refused(pretend_cuda: PretendCuda) -> None:
    """torch's own error is an invalid device ordinal, with a traceback."""
    assert choose_device(settings_from(), local_rank=0).index == 0
    with pytest.raises(UserError, match="process 1 of this machine has no GPU: only 1 are visible; lower torchrun's"):
        choose_device(settings_from(), local_rank=1)


@pytest.mark.parametrize(("has_bf16", "dtype"), [(True, torch.bfloat16), (False, torch.float16)])
def test_mixed_precision_on_cuda_depends_on_the_hardware(
    monkeypatch: pytest.MonkeyPatch, has_bf16: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: has_bf16)
    precision = choose_precision(settings_from(), torch.device("cuda"))
    assert precision.dtype is dtype
    assert precision.is_fast
    assert use_channels_last(settings_from(), torch.device("cuda"))


@pytest.mark.parametrize("kind", ["cpu", "mps"])
def test_reduced_precision_is_off_by_default_without_cuda(kind: str) -> None:
    device = torch.device(kind)
    assert choose_precision(settings_from(), device).name == "float32"
    assert choose_precision(settings_from(precision="bf16"), device).name == "bf16"
    assert not use_channels_last(settings_from(precision="bf16"), device)


def test_float32_turns_tf32_and_channels_last_off(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    for name in ("benchmark", "allow_tf32"):
        monkeypatch.setattr(torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))
    set_backends(choose_precision(settings_from(), device))
    assert torch.backends.cudnn.benchmark
    assert torch.backends.cudnn.allow_tf32
    set_backends(choose_precision(settings_from(precision="float32"), device))
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not use_channels_last(settings_from(precision="float32"), device)


@pytest.mark.parametrize(("precision", "recorded"), [("auto", "float32"), ("bf16", "bf16")])
def test_the_precision_is_part_of_the_record(tinier: Tiny, precision: str, recorded: str) -> None:
    settings = tinier(precision=precision, num_train_iter=1)
    assert training.run(settings).result["precision"] == recorded
    assert RunFolder(run_path(settings)).read_environment()["precision"] == recorded


@pytest.mark.parametrize(("kind", "dtype"), [("avx512_bf16", torch.bfloat16), ("avx512_f", None)])
def test_fast_precision_on_a_cpu_depends_on_the_hardware(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype | None
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {kind: True})
    assert fast_precision(torch.device("cpu")).dtype is dtype
    assert fast_precision(torch.device("mps")).dtype is None


@pytest.mark.parametrize(
    ("precision", "capability", "warns"),
    [
        ("bf16", "avx2", True),
        ("fp16", "avx512_bf16", True),
        ("bf16", "avx512_bf16", False),
        ("bf16", "bf16", False),
        ("float32", "avx2", False),
        ("auto", "avx2", False),
    ],
)
def test_a_precision_that_this_cpu_emulates_is_a_warning(
    precision: str, capability: str, warns: bool, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        training.build(make_context(tiny(precision=precision)))
    expected = [f"python: precision: this CPU has no instructions for {precision}, so it is emulated, .*float32"]
    messages = [str(warning.message) for warning in caught if "emulated" in str(warning.message)]
    assert len(messages) == warns
    assert all(re.match(*pair) for pair in zip(expected, messages, strict=False))


def test_mixed_precision_trains_in_bfloat16(tinier: Tiny) -> None:
    plain, mixed = trained(tinier()), trained(tinier(precision="bf16"))
    dtypes = []
    mixed.model.classifier.register_forward_hook(lambda *call: dtypes.append(call[2].dtype))
    mixed.train_step(
        **mixed.process_batch(
            **mixed.loader_dict["train_lb"].dataset[0, 0], **mixed.loader_dict["train_ulb"].dataset[0, 0]
        )
    )
    assert dtypes == [torch.bfloat16]
    assert mixed.model.classifier.weight.dtype is torch.float32
    assert mixed.metrics[-1]["train/sup_loss"] == pytest.approx(plain.metrics[-1]["train/sup_loss"], rel=0.1)
    assert not mixed.loss_scaler.is_enabled()


def test_channels_last_gives_the_same_losses(tiny: Tiny) -> None:
    plain, last = trained(tiny()), trained(tiny(channels_last=True))
    assert last.model.backbone[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert last.metrics[-1]["train/sup_loss"] == pytest.approx(plain.metrics[-1]["train/sup_loss"], rel=1e-3)


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile on a CPU needs a C++ compiler")
def test_a_compiled_network_gives_the_same_losses_and_gradients(tinier: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one block instead of four, because the C++ compiler takes four seconds per kernel."""
    monkeypatch.setattr(cnn, "WIDTHS", (16,))
    plain, compiled = (training.build(make_context(tinier(compile=compiles))) for compiles in (False, True))
    losses, logits = [], []
    images = batch_of(plain, 0, 1)["x_lb"]
    # Worker processes, and the search for the vector instructions of this CPU, would each import torch again.
    with torch._inductor.config.patch({"compile_threads": 1, "cpp.vec_isa_ok": False}):
        for algorithm in (plain, compiled):
            algorithm.it = algorithm.epoch = 0
            losses.append(algorithm.step(**batch_of(algorithm, 0, 0)).total)
            losses[-1].backward()
            with torch.no_grad():
                logits.append(algorithm.model.eval()(images)["logits"])
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-5)
    gradients = dict(plain.model.named_parameters())
    for name, parameter in compiled.model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name].grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-3, atol=1e-4)
    assert set(compiled.model.state_dict()) == set(plain.model.state_dict())


def test_compiling_without_a_compiler_is_a_clear_error(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="compile: needs a C\\+\\+ compiler"):
        trained(tiny(compile=True))


def test_compiling_for_cuda_without_a_compiler_is_a_clear_error(
    tiny: Tiny, pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton compiles the code that launches its kernels with a C compiler, in the first step."""
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("gcc", "clang", "cl") else name)
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(UserError, match="compile: needs a C compiler on an NVIDIA GPU, but none is installed"):
        training.build(make_context(tiny(compile=True, device="cuda")))
    monkeypatch.setenv("CC", "my-compiler")
    training.build(make_context(tiny(compile=True, device="cuda")))


def test_cuda_calls_are_redirected_to_the_device() -> None:
    with RedirectCuda(torch.device("cpu")):
        assert torch.ones(2).cuda(None).device.type == "cpu"
        assert torch.ones(2, dtype=torch.long).cuda(0, non_blocking=True).tolist() == [1, 1]


def test_copies_to_the_gpu_use_pinned_memory(pretend_cuda: PretendCuda) -> None:
    """The loaders reuse their buffers immediately; the pretend device refuses asynchronous copies of other memory."""
    images = torch.randn(2, 3, 4, 4)
    with pretend_cuda.counted() as waits:
        for channels_last in (False, True):
            copied = to_device(images, torch.device("cuda"), channels_last)
            assert copied.is_contiguous(memory_format=torch.channels_last) is channels_last
    assert not waits
    assert torch.equal(copied.cpu(), images)


def test_without_pinned_memory_the_host_waits_for_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Apple GPUs, where an asynchronous copy could read the data of the next batch."""
    calls: list[dict[str, Any]] = []
    original = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a, **k: calls.append(k) or original(self, torch.float32))
    to_device(torch.ones(2), torch.device("mps"), False)
    assert [kwargs["non_blocking"] for kwargs in calls] == [False]


def test_a_copy_within_the_cpu_does_not_ask_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether memory is pinned is a question to CUDA, which a fork of a process that has used a GPU cannot ask."""

    def refused(*_: Any) -> bool:
        raise RuntimeError("CUDA error: initialization error")

    for name in ("is_pinned", "pin_memory"):
        monkeypatch.setattr(torch.Tensor, name, refused)
    assert torch.equal(to_device(torch.ones(2), torch.device("cpu"), False), torch.ones(2))


@pytest.mark.parametrize(("gigabytes", "batch"), [(24, 512), (8, 128), (80, 1024), (0.1, 16)])
def test_the_evaluation_batch_follows_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, gigabytes: float, batch: int
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (int(gigabytes * 2**30), 2**37))
    assert evaluation_batch(settings_from(img_size=224), torch.device("cuda")) == batch
    assert evaluation_batch(settings_from(eval_batch_size=48), torch.device("cuda")) == 48
    assert evaluation_batch(settings_from(), torch.device("cpu")) == 256


def test_processes_whose_gpus_differ_in_memory_share_the_images(tiny: Tiny) -> None:
    """With batches of two sizes, some images would be evaluated twice, and others not at all."""

    class OneOfTwo(ProcessGroup):
        def all_gather(self, value: Any) -> list[Any]:
            return [value, 16]

    context = make_context(tiny(eval_batch_size=64))
    for group, batch in ((ProcessGroup(), 64), (OneOfTwo(), 16)):
        algorithm = training.build(replace(context, group=group))
        assert {images.batch_size for images in algorithm.eval_sets.values()} == {batch}


def test_memory_that_torch_keeps_for_reuse_counts_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a run, the next one in the same process finds the GPU full of memory that torch has not returned."""
    gigabytes = {"memory_reserved": 20, "memory_allocated": 3}
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2 * 2**30, 24 * 2**30))
    for name, size in gigabytes.items():
        monkeypatch.setattr(torch.cuda, name, lambda _, size=size: size * 2**30)
    assert free_memory(torch.device("cuda")) == 19 * 2**30
    assert evaluation_batch(settings_from(img_size=224), torch.device("cuda")) == 512
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 16)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 15)
    monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 4)
    assert free_memory(torch.device("mps")) == 12
