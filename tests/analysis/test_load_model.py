"""A loaded run is the network that was tested, and loading it leaves no trace."""

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
def test_it_classifies_as_at_the_last_evaluation(values: dict[str, Any], train_run: TrainRun) -> None:
    run = train_run(**values)
    loaded = load_model(run)
    last = run.folder.read_metrics()[-1]
    for name, positions in (("target", loaded.data.split.target), ("unlabeled", loaded.data.split.unlabelled)):
        made = compute(loaded, positions)
        right = made.logits.argmax(1) == loaded.data.labels[positions].numpy()
        assert right.mean() == pytest.approx(last[f"{name}/top1"])
    # The features are what is classified, not a projection of it.
    classified = loaded.net(torch.from_numpy(made.feat), only_fc=True)
    np.testing.assert_allclose(classified.detach().numpy(), made.logits, atol=1e-4)


def test_without_images_it_is_the_same_network(pair: tuple[FinishedRun, FinishedRun]) -> None:
    whole, bare = load_model(pair[1]), load_model_without_images(pair[1])
    assert bare.data.classes == whole.data.classes == tuple("0123456789")
    assert bare.data.steps_per_epoch == whole.data.steps_per_epoch
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole.net(x)["logits"], bare.net(x)["logits"])


def test_it_leaves_no_trace(pair: tuple[FinishedRun, FinishedRun], capsys: pytest.CaptureFixture[str]) -> None:
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
