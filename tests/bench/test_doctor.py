"""The checks of ``ssdg doctor`` detect the problems that they are for."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from semilearn_ext.__main__ import main
from semilearn_ext.bench import doctor
from semilearn_ext.bench.doctor import NOTE, OK, PROBLEM
from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.engine.hooks import UpdateHook
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, settings_from
from tests.pretend_cuda import PretendCuda

CPU = torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_the_other_checks_run(
    tiny: Callable[..., Settings], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "check_shm", lambda _: doctor.Finding(OK, "shm", "enough"))
    monkeypatch.setattr(doctor, "unusable_gpu", lambda _: "")
    settings = tiny()
    values = [f"cache_dir={settings.cache_dir}", f"adain_dir={settings.adain_dir}"]
    main(["doctor", "--device", "cpu", "--methods", "fixmatch_upcsc,stylematch", "--set", *values])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("note")] == [line for line in lines if "no GPU; training" in line]
    for step in ("fixmatch_upcsc, step: usb", "fixmatch_upcsc, step: reference", "stylematch, step: reference"):
        assert [line for line in lines if line.startswith("ok") and step in line and "as on the CPU" in line]
    assert [line for line in lines if "views per second" in line and "measured on a CPU" in line]
    assert lines[-1].startswith("all ")


def test_all_checks_run_on_a_gpu(
    tiny: Callable[..., Settings], pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Except that of the throughput, which a simulated GPU cannot pass."""
    small = functools.partial(doctor.check_throughput, count=4, size=32, rounds=1)
    monkeypatch.setattr(doctor, "check_throughput", small)
    findings = list(doctor.examine("cuda", ["fixmatch_upcsc"], {"cache_dir": tiny().cache_dir}))
    statuses = {finding.check: finding.status for finding in findings}
    assert [*statuses] == ["versions", "gpu", "memory", "shm", "precision", "views", "step", "waits", "throughput"]
    assert {name for name, status in statuses.items() if status != OK} <= {"shm", "throughput"}, findings
    texts = " ".join(finding.text for finding in findings)
    for part in ("cuda:0 (pretend)", "bf16, views on device", "8.6 GB of GPU memory", "never waits", "0 of "):
        assert part in texts


def test_a_wait_in_a_step_is_a_problem(pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    update = UpdateHook.after_train_step
    monkeypatch.setattr(UpdateHook, "after_train_step", lambda hook, algorithm: waiting_update(update, hook, algorithm))
    finding = doctor.check_waits(torch.device("cuda", 0))
    assert finding.status == PROBLEM
    assert "(1)" in finding.text


def waiting_update(update: Callable[..., None], hook: UpdateHook, algorithm: SSDGBase) -> None:
    algorithm.out_dict["loss"].item()
    update(hook, algorithm)


def test_a_problem_is_one_line_and_the_command_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "unusable_gpu", lambda _: "its driver 470.82 is too old; install driver 580 or newer")
    monkeypatch.setattr(doctor, "check_throughput", lambda _: doctor.Finding(OK, "throughput", "fast"))
    with pytest.raises(UserError, match=r"1 of .* checks found a problem"):
        main(["doctor", "--device", "cpu", "--methods", "none"])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("PROBLEM")]
    assert "470.82" in line
    assert "install driver" in line


@pytest.mark.parametrize(
    ("precision", "capability", "status", "text"),
    [
        ("auto", "avx2", OK, "float32, views on cpu; this CPU would emulate bf16 and fp16"),
        ("auto", "avx512_bf16", OK, "float32, views on cpu; this CPU would emulate fp16,"),
        ("bf16", "avx2", PROBLEM, "no instructions for bf16, so it is emulated.*use precision: float32"),
        ("bf16", "avx512_bf16", OK, "bf16, views on cpu"),
    ],
)
def test_emulated_precision_is_named(
    precision: str, capability: str, status: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {capability: True})
    finding = doctor.check_precision(settings_from(precision=precision), CPU)
    assert finding.status == status
    assert re.search(text, finding.text)


def test_steps_are_checked_in_the_configured_precision(
    tiny: Callable[..., Settings], recwarn: pytest.WarningsRecorder
) -> None:
    values = {"cache_dir": tiny().cache_dir}
    exact, mixed = (
        doctor.check_step("fixmatch", "usb", CPU, {**values, **more}) for more in ({}, {"precision": "bf16"})
    )
    assert exact.status == mixed.status == OK
    assert exact.text.partition("(")[0] != mixed.text.partition("(")[0]
    assert not recwarn.list


def test_a_small_shm_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_shm(tmp_path / "nowhere").status == OK
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=64 * 2**20))
    finding = doctor.check_shm(tmp_path)
    assert finding.status == PROBLEM
    assert "--shm-size" in finding.remedy


@pytest.mark.parametrize(("loss", "status"), [(1.0, OK), (1.005, OK), (1.02, PROBLEM), (float("nan"), PROBLEM)])
def test_a_loss_that_differs_from_the_cpu_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, loss: float, status: str
) -> None:
    losses = {"cuda": loss, "cpu": 1.0}
    monkeypatch.setattr(doctor, "_loss", lambda name, step, device, values: losses[device])
    assert doctor.check_step("fixmatch", "usb", torch.device("cuda"), {}).status == status


def test_a_crash_in_a_step_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> float:
        raise RuntimeError("CUDA error:\nno kernel image is available")

    monkeypatch.setattr(doctor, "_loss", crash)
    finding = doctor.check_step("fixmatch", "usb", CPU, {})
    assert finding.status == PROBLEM
    assert "\n" not in finding.line()
    assert "no kernel image" in finding.text


def test_a_crash_in_another_check_is_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an operation that a GPU does not have: the checks that follow are still made."""

    def crash(*_: object) -> torch.Tensor:
        raise NotImplementedError("the operator 'aten::amin'\nis not implemented for MPS")

    monkeypatch.setattr(doctor.device_kernels, "plain", crash)
    findings = {finding.check: finding for finding in doctor.examine("cpu", [], {})}
    assert findings["views"].status == PROBLEM
    assert "\n" not in findings["views"].line()
    assert "not implemented for MPS; train with --device cpu" in findings["views"].line()
    assert findings["throughput"].status == OK


def test_views_that_differ_from_the_cpu_are_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_views(CPU).text.startswith("0 of ")
    plain = doctor.device_kernels.plain
    monkeypatch.setattr(doctor.device_kernels, "plain", lambda images, spec: plain(255 - images, spec))
    assert doctor.check_views(CPU).status == PROBLEM


def test_little_gpu_memory_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    for free, status in ((24 * 10**9, OK), (10**9, NOTE)):
        monkeypatch.setattr(doctor, "free_memory", lambda _, free=free: free)
        assert list(doctor.check_memory(torch.device("cuda")))[-1].status == status


@pytest.mark.parametrize("name", ["comatch", "dash", "simmatch"])
def test_methods_that_need_more_than_a_batch_are_checked(
    name: str, tiny: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    """CoMatch and SimMatch need the epoch, and Dash needs the loss after its warm-up."""
    finding = doctor.check_step(name, "usb", CPU, {"cache_dir": tiny().cache_dir})
    assert finding.status == OK, finding.text
    assert not capsys.readouterr().out
