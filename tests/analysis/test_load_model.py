"""A loaded run is the network that was evaluated, and loading it has no side effects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from semilearn_ext.analysis.features import compute
from semilearn_ext.analysis.load_model import load_model, load_model_without_images
from semilearn_ext.analysis.load_run import FinishedRun
from tests.analysis.conftest import TrainRun, content_of
from tests.conftest import SHARED

ADAIN = SHARED / "weights" / "adain"
NEEDS_ADAIN = pytest.mark.skipif(not ADAIN.is_dir(), reason="needs the AdaIN weights in ../shared/weights/adain")


@pytest.mark.parametrize(
    "values",
    [
        {"algorithm": "simmatch"},
        {"algorithm": "fixmatch_dgwm"},
        {"eval_with_ema": True, "ema_m": 0.5, "variant": "ema"},
        pytest.param({"algorithm": "stylematch", "adain_dir": str(ADAIN)}, marks=NEEDS_ADAIN),
    ],
    ids=["simmatch", "dgwm", "ema", "stylematch"],
)
def test_a_loaded_model_classifies_as_at_the_last_evaluation(values: dict[str, Any], train_run: TrainRun) -> None:
    run = train_run(**values)
    loaded = load_model(run)
    last = run.folder.read_metrics()[-1]
    for name, positions in (("target", loaded.data.split.target), ("unlabeled", loaded.data.split.unlabelled)):
        outputs = compute(loaded, positions)
        correct = outputs.logits.argmax(1) == loaded.data.labels[positions].numpy()
        assert correct.mean() == pytest.approx(last[f"{name}/top1"])
    # The features are the input of the classifier, not a projection of it.
    classified = loaded.net(torch.from_numpy(outputs.feat), only_fc=True)
    np.testing.assert_allclose(classified.detach().numpy(), outputs.logits, atol=1e-4)


def test_a_model_loaded_without_images_is_the_same_network(pair: tuple[FinishedRun, FinishedRun]) -> None:
    with_images, without_images = load_model(pair[1]), load_model_without_images(pair[1])
    assert without_images.data.classes == with_images.data.classes == tuple("0123456789")
    assert without_images.data.steps_per_epoch == with_images.data.steps_per_epoch
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(with_images.net(x)["logits"], without_images.net(x)["logits"])


def test_loading_changes_neither_files_nor_random_states(
    pair: tuple[FinishedRun, FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    before = content_of(pair[1].path)
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(5)
    np.random.seed(5)
    load_model(pair[1])
    assert torch.equal(torch.rand(3), expected[0])
    np.testing.assert_array_equal(np.random.rand(3), expected[1])
    assert content_of(pair[1].path) == before
    assert capsys.readouterr().out == ""
