"""A message names an NVIDIA GPU that torch cannot use, and what to install."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from semilearn_ext.engine import nvidia
from semilearn_ext.engine.device import choose_device
from semilearn_ext.errors import UserError
from semilearn_ext.settings import settings_from
from tests.pretend_cuda import PretendCuda

MODULE = "NVRM version: NVIDIA UNIX {kind}x86_64 Kernel Module  {version}  Mon Jul 19 06:56:55 UTC 2021\nGCC 9.3.0\n"
OPEN_MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (dvs@x)  Sun Jul 20\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The version file of a driver with which torch finds no device."""
    path = tmp_path / "version"
    path.write_text(MODULE.format(kind="", version="470.57.02"))
    monkeypatch.setattr(nvidia, "DRIVER", path)
    monkeypatch.setattr(nvidia, "SIGNS", (path,))
    monkeypatch.setattr(nvidia, "CONTROL", tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return path


def test_an_old_driver_is_a_warning_that_says_what_to_install(driver: Path) -> None:
    with pytest.warns(UserWarning, match=r"instead of the NVIDIA GPU: its driver 470.57.02 is too old .* 580 or newer"):
        assert choose_device(settings_from()).type in ("cpu", "mps")


def test_a_request_for_cuda_names_the_reason_why_it_is_unavailable(driver: Path) -> None:
    with pytest.raises(UserError, match=r"no cuda device is available \(its driver 470.57.02 is too old .*; usable: "):
        choose_device(settings_from(device="cuda"))


def test_a_torch_without_cuda_is_named(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "was built without CUDA; install a build with CUDA" in nvidia.unusable_gpu()


@pytest.mark.parametrize("module", [MODULE.replace("{kind}", ""), OPEN_MODULE])
def test_a_driver_that_does_not_respond_is_named(driver: Path, module: str) -> None:
    driver.write_text(module.format(version="580.65.06"))
    assert nvidia.unusable_gpu() == "its driver 580.65.06 does not respond; check nvidia-smi"


def test_a_container_without_gpus_is_named(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of the host's driver can be read in every container, but the GPU's device files cannot."""
    driver.write_text(OPEN_MODULE.format(version="580.65.06"))
    monkeypatch.setattr(nvidia, "CONTROL", driver / "missing")
    with pytest.warns(UserWarning, match=r"NVIDIA GPU: its driver 580.65.06 is loaded, but .* \(Docker: --gpus all\)"):
        assert choose_device(settings_from()).type in ("cpu", "mps")


@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles"])
def test_a_gpu_hidden_by_the_user_gives_no_warning(
    driver: Path, visible: str, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    choose_device(settings_from())
    assert not recwarn.list


def test_no_gpu_gives_no_warning(driver: Path, recwarn: pytest.WarningsRecorder) -> None:
    driver.unlink()
    assert nvidia.unusable_gpu() == ""
    choose_device(settings_from())
    assert not recwarn.list


def test_a_request_for_the_cpu_gives_no_warning(driver: Path, recwarn: pytest.WarningsRecorder) -> None:
    assert choose_device(settings_from(device="cpu")).type == "cpu"
    assert not recwarn.list


def test_an_old_card_is_not_used(pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch reports it as available, but fails at the first operation."""
    assert choose_device(settings_from()).type == "cuda"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (5, 2))
    with pytest.warns(UserWarning, match=r"pretend has compute capability 5.2, but .* was built for sm_70, sm_80"):
        assert choose_device(settings_from()).type != "cuda"
    with pytest.raises(UserError, match=r"compute capability 5.2"):
        choose_device(settings_from(device="cuda"))


@pytest.mark.parametrize(("capability", "wanted"), [((5, 2), "an older"), ((12, 0), "a newer")])
def test_the_build_to_install_depends_on_the_age_of_the_card(
    capability: tuple[int, int], wanted: str, pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build that was released before the card has no code for it either."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_70", "sm_90a"])
    assert nvidia.unusable_gpu().endswith(f"; install a build of torch for {wanted} CUDA")


def test_a_card_that_cannot_be_initialised_is_not_used(
    pretend_cuda: PretendCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch says that it is available, but another process has it for itself."""

    def busy(_: int) -> tuple[int, int]:
        raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable\nCUDA kernel errors might be")

    monkeypatch.setattr(torch.cuda, "get_device_capability", busy)
    with pytest.warns(UserWarning, match=r"instead of the NVIDIA GPU: .*busy or unavailable\); check nvidia-smi$"):
        assert choose_device(settings_from()).type != "cuda"
    with pytest.raises(UserError, match=r"no cuda device is available \(it cannot be initialised"):
        choose_device(settings_from(device="cuda"))


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((8, 6), ["sm_80"], True),
        ((8, 0), ["sm_86"], False),
        ((9, 0), ["sm_80", "compute_80"], True),
        ((9, 0), ["sm_80"], False),
        ((9, 0), ["sm_90a"], True),
        ((12, 0), ["sm_75", "sm_120"], True),
        ((6, 1), ["sm_75", "compute_120"], False),
    ],
)
def test_compute_capabilities_that_a_build_supports(
    capability: tuple[int, int], built_for: list[str], runs: bool
) -> None:
    assert nvidia.runs_on(capability, built_for) is runs
