"""StyleMatch's and DGWM's classifiers compared with numbers of the released code, in training and test mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import linear

from semilearn_ext.nets.classifier_net import find_classifier, replace_classifier
from semilearn_ext.nets.cnn import cnn
from semilearn_ext.nets.heads import Passes
from semilearn_ext.nets.modulated_classifier import ModulatedClassifier
from semilearn_ext.nets.stochastic_classifier import StochasticClassifier

RIVALS = Path(__file__).parents[1] / "fixtures" / "rivals"


def read(path: Path) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in np.load(path).items()}


def without_noise(recorded: dict[str, torch.Tensor]) -> Passes:
    return Passes.single(len(recorded["feat"]), torch.device("cpu"), sample=False)


def replace_noise(monkeypatch: pytest.MonkeyPatch, noise: torch.Tensor) -> None:
    """Replace normal noise by ``noise``."""
    monkeypatch.setattr(torch, "randn", lambda *shape, **_: noise.view(*shape))


def test_the_stochastic_classifier_equals_the_released_code(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = read(RIVALS / "stochastic_classifier.npz")
    classifier = StochasticClassifier(24, 7).double()
    classifier.mu.data, classifier.sigma.data = recorded["mu"], recorded["sigma"]
    replace_noise(monkeypatch, recorded["noise"])
    torch.testing.assert_close(classifier(recorded["feat"]), recorded["logits_train"], rtol=0, atol=1e-10)
    torch.testing.assert_close(
        classifier.classify(recorded["feat"], without_noise(recorded)), recorded["logits_test"], rtol=0, atol=1e-10
    )
    torch.testing.assert_close(classifier.eval()(recorded["feat"]), recorded["logits_test"], rtol=0, atol=1e-10)


def test_the_modulated_classifier_equals_the_released_code(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = read(RIVALS / "dgwm.npz")
    classifier = ModulatedClassifier(32, 7).double()
    layers = [m for part in (classifier.describe, classifier.generate) for m in part if isinstance(m, nn.Linear)]
    names = ("p1", "p2", "p3", "p4", "p5", "h1", "h2")
    for name, layer in zip(names, [*layers, classifier.by_feature, classifier.by_class], strict=True):
        layer.weight.data, layer.bias.data = recorded[f"{name}_weight"], recorded[f"{name}_bias"]
    classifier.weight.data = recorded["weight"]
    replace_noise(monkeypatch, recorded["noise"])
    torch.testing.assert_close(classifier(recorded["feat"]), recorded["logits_train"], rtol=0, atol=1e-10)
    torch.testing.assert_close(
        classifier.classify(recorded["feat"], without_noise(recorded)),
        recorded["logits_pseudo_label"],
        rtol=0,
        atol=1e-10,
    )
    torch.testing.assert_close(classifier.eval()(recorded["feat"]), recorded["logits_test"], rtol=0, atol=1e-10)


def test_widths_are_the_published_ones_at_512_features() -> None:
    shapes = {tuple(p.shape) for p in ModulatedClassifier(512, 7).parameters() if p.ndim == 2}
    assert shapes == {(7, 512), (256, 512), (128, 256), (64, 128), (256, 128), (512, 256), (512, 512)}


@pytest.mark.parametrize("kind", [ModulatedClassifier, StochasticClassifier])
def test_several_passes_in_one_call_equal_one_call_each(kind: type[ModulatedClassifier]) -> None:
    """Rows in any order; passes with and without noise."""
    torch.manual_seed(0)
    classifier = kind(16, 5).double()
    features = torch.randn(30, 16, dtype=torch.float64)
    index = torch.arange(30) % 3
    drawn = classifier.draw(2)
    classifier.draw = lambda count: drawn[:count]  # type: ignore[method-assign]
    together = classifier.classify(features, Passes(index, (True, False, True)))
    for number, (sample, noise) in enumerate([(True, drawn[:1]), (False, drawn[:0]), (True, drawn[1:])]):
        classifier.draw = lambda count, noise=noise: noise  # type: ignore[method-assign]
        rows = index == number
        separate = classifier.classify(features[rows], Passes.single(10, torch.device("cpu"), sample))
        torch.testing.assert_close(together[rows], separate, rtol=0, atol=1e-12)


def test_passes_without_noise_repeat_and_the_others_do_not() -> None:
    torch.manual_seed(0)
    classifier = ModulatedClassifier(16, 5)
    passes = Passes.of_sizes([6, 6, 6], [True, False, True], torch.device("cpu"))
    features = torch.randn(18, 16)
    first, second = classifier.classify(features, passes), classifier.classify(features, passes)
    assert torch.equal(first[6:12], second[6:12])
    assert (first[:6] != second[:6]).any(dim=1).all()
    assert (first[12:] != second[12:]).any(dim=1).all()


def test_noise_is_drawn_in_training_only() -> None:
    classifier = StochasticClassifier(8, 3)
    feat = torch.randn(4, 8)
    assert not torch.equal(classifier(feat), classifier(feat))
    classifier.eval()
    assert torch.equal(classifier(feat), classifier(feat))


def test_a_networks_classifier_is_replaced() -> None:
    model = cnn(10, 32)
    replace_classifier(model, StochasticClassifier(model.num_features, 10))
    assert isinstance(find_classifier(model), StochasticClassifier)
    assert model.eval()(torch.zeros(2, 3, 32, 32))["logits"].shape == (2, 10)
    replace_classifier(model, ModulatedClassifier(model.num_features, 10))
    modulated = find_classifier(model)
    feat = torch.randn(2, model.num_features)
    assert torch.equal(model.eval()(feat, only_fc=True), linear(feat, modulated.weight))
