"""Training steps equal those of the released trainers: losses, gradients, statistics of batch norm.

The fixtures were recorded by running the authors' code in float64 (see tests/fixtures/steps/README.md). A slow step,
one pass at a time, is compared with the recorded numbers and then replaces the authors' code in all other cases.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.algorithms.released_step import CLOSE, PASSES, ReleasedStep, Repeated, make_images, method_of
from tests.algorithms.slow_step import random_step, slow_step

FILES = sorted((Path(__file__).parents[1] / "fixtures" / "steps").glob("*.npz"))
THREE_BY_FIVE = {"domains": 3, "classes": 7, "labelled": 5, "unlabelled": 5}
FOUR_DOMAINS = {"domains": 4, "classes": 9, "labelled": 2, "unlabelled": 4, "threshold": 0.4, "bias": False}
FOUR_DOMAINS |= {"features": 24, "size": 16}
TWO_DOMAINS = {"domains": 2, "classes": 5, "labelled": 3, "unlabelled": 3, "features": 8}
NOTHING_KEPT = {**TWO_DOMAINS, "threshold": 1.0}
EVERYTHING_KEPT = {**TWO_DOMAINS, "threshold": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


def repeat(recorded: ReleasedStep, folder: Path, cache_dir: Path, adain_dir: Path, **values: Any) -> Repeated:
    images = make_images(folder, recorded.domains, recorded.classes)
    return Repeated(recorded, images, cache_dir=str(cache_dir), adain_dir=str(adain_dir), **values)


def test_there_is_a_fixture_for_every_released_trainer() -> None:
    recorded = {
        "erm",
        "fixmatch",
        "stylematch",
        "fixmatch_upcsc",
        "stylematch_upcsc",
        "fixmatch_fbcsa",
        "fixmatch_dgwm",
    }
    assert recorded <= {method_of(path.stem) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_losses_gradients_and_statistics_equal_the_released_ones(
    path: Path, folder: Path, cache_dir: Path, adain_dir: Path
) -> None:
    repeat(ReleasedStep.read(path), folder, cache_dir, adain_dir).compare()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_slow_step_equals_the_released_ones(path: Path) -> None:
    recorded = ReleasedStep.read(path)
    if "noise" in recorded.numbers:
        recorded.numbers["noise"] = recorded.noise(recorded.numbers["noise"].shape[1:])
    slow = slow_step(recorded, recorded.domains)
    expected = {k: v for k, v in recorded.numbers.items() if k.startswith(("loss_", "grad/", "after/", "keep_"))}
    assert slow.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(
            slow[name], value.to(slow[name].dtype), rtol=0, atol=1e-7 if "keep" in name else 1e-9
        )


@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize("sizes", [THREE_BY_FIVE, FOUR_DOMAINS], ids=["3x7", "4x9"])
@pytest.mark.parametrize("method", sorted(PASSES))
def test_the_reference_step_equals_the_slow_step(
    method: str, sizes: dict[str, Any], seed: int, folder: Path, cache_dir: Path, adain_dir: Path
) -> None:
    step = random_step(method, seed, **sizes)
    assert all(float(value) > 0 for name, value in step.numbers.items() if name.startswith("loss_"))
    repeat(step, folder, cache_dir, adain_dir).compare()


@pytest.mark.parametrize("sizes", [NOTHING_KEPT, EVERYTHING_KEPT], ids=["nothing kept", "everything kept"])
@pytest.mark.parametrize("method", sorted(PASSES.keys() - {"erm"}))
def test_the_reference_step_equals_the_slow_step_at_extreme_thresholds(
    method: str, sizes: dict[str, Any], folder: Path, cache_dir: Path, adain_dir: Path
) -> None:
    step = random_step(method, 3, **sizes)
    assert float(step.numbers["keep_rate_unlabelled"]) == (sizes["threshold"] == 0)
    repeat(step, folder, cache_dir, adain_dir).compare()


@pytest.mark.parametrize("method", ["fixmatch_upcsc", "stylematch_upcsc"])
def test_the_papers_form_of_the_loss_has_the_same_passes(
    method: str, folder: Path, cache_dir: Path, adain_dir: Path
) -> None:
    step = random_step(method, 4, **THREE_BY_FIVE, loss_form="paper")
    repeat(step, folder, cache_dir, adain_dir, loss_form="paper").compare()
    released = random_step(method, 4, **THREE_BY_FIVE)
    assert not torch.isclose(released.numbers["loss_upcsc"], step.numbers["loss_upcsc"], **CLOSE)


def test_the_method_is_parsed_from_the_file_name() -> None:
    assert [method_of(stem) for stem in ("fixmatch", "fixmatch_seed2", "fixmatch_upcsc_7", "stylematch_upcsc")] == [
        *("fixmatch", "fixmatch", "fixmatch_upcsc", "stylematch_upcsc")
    ]
