"""Confusion, calibration and pseudo labels, each compared with a slow loop; and the file that a run writes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from semilearn_ext import training
from semilearn_ext.engine.details import (
    BINS,
    calibration,
    calibration_error,
    confusion,
    macro_mean,
    measure_details,
    pseudo_labels,
)
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]
N, C = 300, 5


@pytest.fixture
def logits() -> torch.Tensor:
    return 2 * torch.randn(N, C, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels() -> torch.Tensor:
    """Class 4 has no image."""
    return torch.randint(C - 1, (N,), generator=torch.Generator().manual_seed(1))


def test_confusion_counts_pairs(logits: torch.Tensor, labels: torch.Tensor) -> None:
    predictions = logits.argmax(1)
    expected = [[0] * C for _ in range(C)]
    for true, predicted in zip(labels.tolist(), predictions.tolist(), strict=True):
        expected[true][predicted] += 1
    assert confusion(labels, predictions, C).tolist() == expected
    assert expected[4] == [0] * C


def test_calibration_equals_a_plain_loop(logits: torch.Tensor, labels: torch.Tensor) -> None:
    members: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        total = sum(math.exp(value) for value in row)
        confidence = max(math.exp(value) / total for value in row)
        (number,) = (k for k in range(BINS) if k / BINS < confidence <= (k + 1) / BINS)
        members[number].append((confidence, row.index(max(row)) == label))
    error = 0.0
    bins = calibration(logits, labels)
    for measured, images in zip(bins, members, strict=True):
        assert measured["count"] == len(images)
        if not images:
            assert measured["confidence"] is measured["accuracy"] is None
            continue
        confidence = sum(value for value, _ in images) / len(images)
        accuracy = sum(correct for _, correct in images) / len(images)
        assert measured["confidence"] == pytest.approx(confidence)
        assert measured["accuracy"] == pytest.approx(accuracy)
        error += len(images) / N * abs(accuracy - confidence)
    assert sum(not images for images in members) in range(1, BINS)
    assert calibration_error(bins) == pytest.approx(error)


def test_a_certain_image_is_in_the_last_bin() -> None:
    bins = calibration(torch.tensor([[1000.0, 0.0], [0.0, 1000.0]]), torch.tensor([0, 0]))
    assert bins[-1] == {"count": 2, "confidence": 1.0, "accuracy": 0.5}
    assert calibration_error(bins) == 0.5


def test_pseudo_labels_equal_a_plain_loop(logits: torch.Tensor, labels: torch.Tensor) -> None:
    logits[:, 3] = -100  # never predicted
    predictions, passed = logits.argmax(1), logits.softmax(1).amax(1) > 0.7
    rows = list(zip(labels.tolist(), predictions.tolist(), passed.tolist(), strict=True))
    measured = pseudo_labels(labels, predictions, passed, C)
    for c in range(C):
        claimed = [true for true, predicted, ok in rows if ok and predicted == c]
        images = [ok and predicted == c for true, predicted, ok in rows if true == c]
        assert measured["precision"][c] == (claimed.count(c) / len(claimed) if claimed else None)
        assert measured["recall"][c] == (sum(images) / len(images) if images else None)
    assert measured["precision"][3] is None
    assert measured["recall"][3] == 0
    assert measured["recall"][4] is None
    assert sum(map(sum, measured["confusion"])) == int(passed.sum()) < N


def test_the_macro_mean_leaves_out_classes_without_a_value() -> None:
    assert macro_mean([0.5, None, 0.0]) == 0.25
    assert macro_mean([None, None]) is None


def test_soft_weights_pass_when_they_are_one(logits: torch.Tensor, labels: torch.Tensor) -> None:
    weight = torch.linspace(0, 1, N)
    details = measure_details({"unlabeled": logits}, {"unlabeled": labels}, weight, tuple("abcde"))
    assert sum(map(sum, details.content["pseudo_labels"]["confusion"])) == 1


def test_a_run_writes_its_details_with_a_checksum(tiny: Tiny) -> None:
    settings = tiny(p_cutoff=0.11)
    result = training.run(settings).result
    folder = RunFolder(run_path(settings))
    details = folder.read_details()
    data_sizes = {name: sum(map(sum, images["confusion"])) for name, images in details["images"].items()}
    split = folder.read_split()
    assert data_sizes["unlabeled"] == len(split["train_u"])
    assert data_sizes["source_val"] == len(split["val"])
    for name, images in details["images"].items():
        correct = sum(images["confusion"][c][c] for c in range(10))
        assert correct / data_sizes[name] == pytest.approx(result["metrics"][f"{name}/top1"])
        assert calibration_error(images["calibration"]) == pytest.approx(result["metrics"][f"{name}/ece"])
    pseudo = details["pseudo_labels"]
    kept = sum(map(sum, pseudo["confusion"])) / data_sizes["unlabeled"]
    assert kept == pytest.approx(result["metrics"]["unlabeled/keep_rate"])
    assert result["metrics"]["unlabeled/pseudo_precision"] == macro_mean(pseudo["precision"])
    assert result["metrics"]["unlabeled/pseudo_recall"] == macro_mean(pseudo["recall"])
    assert details["classes"] == split["classes"]
    folder.write_details({**details, "classes": []})
    with pytest.raises(UserError, match="does not match the result of the run"):
        folder.read_details()


def test_a_method_without_unlabelled_images_or_threshold(tiny: Tiny) -> None:
    for algorithm, sets in (("supervised", 2), ("meanteacher", 3)):
        settings = tiny(algorithm=algorithm, num_eval_iter=4)
        metrics = training.run(settings).result["metrics"]
        details = RunFolder(run_path(settings)).read_details()
        assert len(details["images"]) == sets
        assert details["pseudo_labels"] is None
        assert "unlabeled/pseudo_precision" not in metrics
