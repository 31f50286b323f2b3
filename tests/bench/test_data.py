"""The comparison of pipelines runs and reports. The timings themselves are not asserted."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semilearn_ext.bench import data
from tests.pretend_cuda import PretendCuda


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(data, "ROUNDS", 2)
    (tmp_path / "photo" / "dog").mkdir(parents=True)
    for number in range(5):
        noise = np.random.default_rng(number).integers(0, 256, (40, 30, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photo" / "dog" / f"{number}.png")
    return tmp_path


def test_both_pipelines_are_timed(images: Path) -> None:
    report = data.main(images, images=4, size=24)
    assert "device kernels on cpu" in report
    assert "measured on a CPU" in report
    assert "4 images at 24 px" in report
    assert "goal: at least 4x" in report


def test_the_device_kernels_are_timed_on_a_gpu(images: Path, pretend_cuda: PretendCuda) -> None:
    report = data.main(images, images=4, size=24, device=torch.device("cuda", 0))
    assert "device kernels on cuda" in report
    assert "one transfer" in report
    assert "measured on a CPU" not in report
