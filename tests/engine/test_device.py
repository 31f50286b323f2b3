"""Devices and their options. A GPU is not to be had everywhere; what can be seen without one is seen here."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.cuda_calls import CudaMeans
from semilearn_ext.engine.device import (
    choose_device,
    choose_precision,
    evaluation_batch,
    fast_precision,
    set_backends,
    to_device,
    use_channels_last,
)
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from tests.pretend_cuda import PretendCuda

Tiny = Callable[..., Settings]


def trained(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.train()
    return algorithm


def test_the_device_is_chosen_by_itself() -> None:
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert choose_device(settings_from()).type == expected
    assert choose_device(settings_from(device="cpu")).type == "cpu"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there_is_refused() -> None:
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
def test_elsewhere_the_fast_profile_is_off_unless_asked_for(kind: str) -> None:
    device = torch.device(kind)
    assert choose_precision(settings_from(), device).name == "float32"
    assert choose_precision(settings_from(precision="bf16"), device).name == "bf16"
    assert not use_channels_last(settings_from(precision="bf16"), device)


def test_float32_goes_without_the_fast_profile(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(("asked", "recorded"), [("auto", "float32"), ("bf16", "bf16")])
def test_the_precision_is_part_of_the_record(tinier: Tiny, asked: str, recorded: str) -> None:
    settings = tinier(precision=asked, num_train_iter=1)
    assert training.run(settings).result["precision"] == recorded
    assert RunFolder(run_path(settings)).read_environment()["precision"] == recorded


@pytest.mark.parametrize(("kind", "dtype"), [("avx512_bf16", torch.bfloat16), ("avx512_f", None)])
def test_fast_precision_on_a_cpu_depends_on_the_hardware(
    monkeypatch: pytest.MonkeyPatch, kind: str, dtype: torch.dtype | None
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {kind: True})
    assert fast_precision(torch.device("cpu")).dtype is dtype


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
    found = [str(warning.message) for warning in caught if "emulated" in str(warning.message)]
    assert len(found) == warns
    assert all(re.match(*pair) for pair in zip(expected, found, strict=False))


def test_mixed_precision_trains_in_bfloat16(tinier: Tiny) -> None:
    plain, mixed = trained(tinier()), trained(tinier(precision="bf16"))
    seen = []
    mixed.model.classifier.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    mixed.train_step(
        **mixed.process_batch(
            **mixed.loader_dict["train_lb"].dataset[0, 0], **mixed.loader_dict["train_ulb"].dataset[0, 0]
        )
    )
    assert seen == [torch.bfloat16]
    assert mixed.model.classifier.weight.dtype is torch.float32
    assert mixed.metrics[-1]["train/sup_loss"] == pytest.approx(plain.metrics[-1]["train/sup_loss"], rel=0.1)
    assert not mixed.loss_scaler.is_enabled()


def test_channels_last_gives_the_same_losses(tiny: Tiny) -> None:
    plain, last = trained(tiny()), trained(tiny(channels_last=True))
    assert last.model.backbone[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert last.metrics[-1]["train/sup_loss"] == pytest.approx(plain.metrics[-1]["train/sup_loss"], rel=1e-3)


@pytest.mark.skipif(not shutil.which("g++"), reason="torch.compile on a CPU needs a C++ compiler")
def test_a_compiled_network_gives_the_same_losses(tiny: Tiny) -> None:
    plain, compiled = trained(tiny(num_train_iter=2)), trained(tiny(num_train_iter=2, compile=True))
    assert compiled.metrics[-1]["train/sup_loss"] == pytest.approx(plain.metrics[-1]["train/sup_loss"], rel=1e-3)
    assert set(compiled.model.state_dict()) == set(plain.model.state_dict())


def test_compiling_without_a_compiler_is_a_clear_error(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match="compile: needs a C\\+\\+ compiler"):
        trained(tiny(compile=True))


def test_cuda_calls_mean_the_device() -> None:
    with CudaMeans(torch.device("cpu")):
        assert torch.ones(2).cuda(None).device.type == "cpu"
        assert torch.ones(2, dtype=torch.long).cuda(0, non_blocking=True).tolist() == [1, 1]


def test_a_copy_runs_beside_the_host_only_from_pinned_memory(pretend_cuda: PretendCuda) -> None:
    """The loaders use their buffers again at once; the pretend device refuses such a copy."""
    images = torch.randn(2, 3, 4, 4)
    with pretend_cuda.counted() as waits:
        for channels_last in (False, True):
            copied = to_device(images, torch.device("cuda"), channels_last)
            assert copied.is_contiguous(memory_format=torch.channels_last) is channels_last
    assert not waits
    assert torch.equal(copied.cpu(), images)


def test_without_pinned_memory_the_host_waits_for_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Apple GPUs, where a copy that is not waited for reads what the next batch has written."""
    asked: list[dict[str, Any]] = []
    ordinary = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda self, *a, **k: asked.append(k) or ordinary(self, torch.float32))
    to_device(torch.ones(2), torch.device("mps"), False)
    assert [kwargs["non_blocking"] for kwargs in asked] == [False]


@pytest.mark.parametrize(("gigabytes", "batch"), [(24, 512), (8, 128), (80, 1024), (0.1, 16)])
def test_the_evaluation_batch_follows_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, gigabytes: float, batch: int
) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (int(gigabytes * 2**30), 2**37))
    assert evaluation_batch(settings_from(img_size=224), torch.device("cuda")) == batch
    assert evaluation_batch(settings_from(eval_batch_size=48), torch.device("cuda")) == 48
    assert evaluation_batch(settings_from(), torch.device("cpu")) == 256
