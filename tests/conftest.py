"""Fixtures of several tests: small settings, a small digits_mini, and training in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import torch

# Tests run in parallel with other work, and more threads than cores make all of them slower.
os.environ["OMP_NUM_THREADS"] = "1"

from semilearn_ext import registry
from semilearn_ext.data import digits_generator
from semilearn_ext.data.digits_generator import DomainImages
from semilearn_ext.settings import Settings, extensions, settings_from
from tests.forked import PATIENCE, Forked

if TYPE_CHECKING:
    from tests.pretend_cuda import PretendCuda

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
TINY: dict[str, Any] = {
    "target_domain": "pen",
    "labels_per_class": 5,
    "batch_size": 6,
    "num_train_iter": 4,
    "num_eval_iter": 2,
    "flip": False,
    "lr": 0.05,
    "device": "cpu",
    "progress": False,
    "average": "none",  # averages take two more evaluations per run
}
"""Settings of a run that takes a second: a few steps with few images."""
FinalStates = Callable[..., list[dict[str, Any]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--freeze-host-waits", action="store_true", help="update tests/fixtures/host_waits.json")
    parser.addoption("--without-gpu", action="store_true", help="train every method of tests/gpu on a CPU as well")


@pytest.fixture(autouse=True)
def forget_extensions() -> Iterator[None]:
    """Remove what a test has registered with ``extend`` before the next test."""
    yield
    registries = (registry.ALGORITHMS, registry.PLUGINS, registry.DATASETS, registry.NETS)
    for origin in {origin for kind in registries for origin in kind.origins.values()} - {registry.HOME}:
        registry.remove(origin)
    extensions._loaded.clear()
    extensions._trust.clear()


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests. It contains digits_mini, generated once and reduced to 20 images per class and domain.

    A tiny run spends most of its time on the evaluation, which uses all images.
    """
    folder = tmp_path_factory.mktemp("cache")
    domains = {name: _first_of_each_class(images, 20) for name, images in digits_generator.generate().items()}
    digits_generator._write_cache(digits_generator.cache_file(folder), domains)
    return folder


def _first_of_each_class(domain: DomainImages, count: int) -> DomainImages:
    rows = sorted(row for label in set(domain.labels) for row in np.flatnonzero(domain.labels == label)[:count])
    return DomainImages(domain.images[rows], domain.labels[rows], tuple(domain.origins[row] for row in rows))


@pytest.fixture(scope="session")
def adain_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AdaIN's published weights, or random ones in files of the same format if ../shared does not exist."""
    published = SHARED / "weights" / "adain"
    if published.is_dir():
        return published
    import torch

    from semilearn_ext.nets.adain import build_decoder, build_encoder

    folder = tmp_path_factory.mktemp("adain")
    torch.save(build_encoder().state_dict(), folder / "vgg_normalised.pth")
    torch.save(build_decoder().state_dict(), folder / "decoder.pth")
    return folder


@pytest.fixture(scope="session")
def device() -> torch.device:
    """A GPU, CUDA or MPS, where there is one that works, else the CPU."""
    from semilearn_ext.engine.device import choose_device

    return choose_device(settings_from())


@pytest.fixture
def tiny(cache_dir: Path, adain_dir: Path, tmp_path: Path) -> Callable[..., Settings]:
    """Settings of a tiny run. Keywords override those of ``TINY``."""

    def make(**values: Any) -> Settings:
        folders = {"cache_dir": cache_dir, "adain_dir": adain_dir, "save_dir": tmp_path / "runs"}
        return settings_from(**{**TINY, **{name: str(path) for name, path in folders.items()}, **values})

    return make


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's own images: three domains, five classes, eight images of each."""
    from tests.image_trees import write_images

    folder = tmp_path_factory.mktemp("images")
    write_images(folder, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "abcde"], count=8)
    return folder


@pytest.fixture
def tinier(tiny: Callable[..., Settings], image_folder: Path) -> Callable[..., Settings]:
    """Like ``tiny``, on so few and small images that every method can be trained in a fraction of a second."""

    def make(**values: Any) -> Settings:
        defaults: dict[str, Any] = {
            "dataset": "folder",
            "data_dir": str(image_folder),
            "img_size": 16,
            "labels_per_class": 2,
            "batch_size": 4,
        }
        return tiny(**{**defaults, **values})

    return make


@pytest.fixture
def pretend_cuda() -> Iterator[PretendCuda]:
    """A simulated CUDA device; see ``tests/pretend_cuda.py``."""
    from tests.pretend_cuda import pretend

    with pretend() as device:
        yield device


@pytest.fixture
def train(cache_dir: Path, tmp_path: Path) -> Callable[..., Forked]:
    """Start ``ssdg train`` in a separate process."""
    common = ("--cache_dir", str(cache_dir), "--save_dir", str(tmp_path / "runs"), "--device", "cpu")
    return lambda *arguments: Forked("train", *common, *arguments, cwd=tmp_path)


@pytest.fixture
def train_script(cache_dir: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run train.py as a user would, in a new interpreter, or with the launcher ``prefix``."""

    def run(*arguments: str, prefix: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
        common = ("--cache_dir", str(cache_dir), "--save_dir", str(tmp_path / "runs"), "--device", "cpu")
        command = [*prefix, str(ROOT / "train.py"), *common, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE)

    return run


@pytest.fixture
def stop_after() -> Callable[[Settings, int], None]:
    """Start a run and request a stop after some steps, as Ctrl-C does."""

    def run(settings: Settings, steps: int) -> None:
        from semilearn.core.hooks import Hook

        from semilearn_ext import training
        from semilearn_ext.engine.context import make_context
        from semilearn_ext.errors import Interrupted
        from semilearn_ext.runs.folder import RunFolder, run_path
        from semilearn_ext.runs.ownership import claim

        class StopAfter(Hook):
            def after_train_step(self, algorithm: Any) -> None:
                if algorithm.it + 1 == steps:
                    algorithm.request_stop()

        folder = RunFolder(run_path(settings))
        claim(folder, settings)
        algorithm = training.build(make_context(settings, folder=folder))
        algorithm.register_hook(StopAfter())
        with pytest.raises(Interrupted, match=f"stopped after iteration {steps} of"):
            algorithm.train()

    return run


@pytest.fixture
def final_states(stop_after: Callable[[Settings, int], None], tmp_path: Path) -> FinalStates:
    """Train without interruption, and again with a stop after some steps; return the final state of both models."""

    def train(make: Callable[..., Settings], stop: int, num_workers: int = 0, **values: Any) -> list[dict[str, Any]]:
        from semilearn_ext import training
        from semilearn_ext.engine.checkpoint import checkpoint_files, load
        from semilearn_ext.runs.folder import run_path

        uninterrupted = make(**values, save_dir=str(tmp_path / "uninterrupted"))
        interrupted = make(**values, save_dir=str(tmp_path / "interrupted"), num_workers=num_workers)
        training.run(uninterrupted)
        stop_after(interrupted, stop)
        training.run(interrupted)
        return [load(checkpoint_files(run_path(settings))[-1])["model"] for settings in (uninterrupted, interrupted)]

    return train
