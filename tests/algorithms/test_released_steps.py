"""Whole training steps equal those of the released trainers: losses, gradients, statistics of batch norm.

The fixtures were recorded by running the authors' code in float64 (see tests/fixtures/steps/README.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from semilearn_ext import training
from semilearn_ext.engine.base import StepLoss
from semilearn_ext.engine.context import make_context
from semilearn_ext.nets.classifier_net import ClassifierNet, find_classifier
from semilearn_ext.settings import settings_from

FIXTURES = Path(__file__).parents[1] / "fixtures" / "steps"
DOMAINS, CLASSES, IMAGES, FEATURES = 3, 7, 5, 16
CLOSE = {"rtol": 0.0, "atol": 1e-9}

# Names of parameters in the released code -> here.
NAMES = {
    "C.linear.": "classifier.",
    "C.mu": "classifier.mu",
    "C.sigma": "classifier.sigma",
    "C.w": "classifier.weight",
    "C.p1.": "classifier.describe.0.",
    "C.p2.": "classifier.describe.2.",
    "C.p3.": "classifier.describe.4.",
    "C.p4.": "classifier.generate.0.",
    "C.p5.": "classifier.generate.2.",
    "C.h1.": "classifier.by_feature.",
    "C.h2.": "classifier.by_class.",
    "fP.": "plugins.upcsc.feature_projector.",
    "cP.": "plugins.upcsc.proxy_projector.",
    "G.": "backbone.",
}
LOSSES = {
    "loss_x": "sup_loss",
    "loss_u_aug": "unsup_loss",
    "loss_u_sty": "style_loss",
    "loss_total": "total_loss",
}


def here(name: str) -> str:
    for theirs, ours in NAMES.items():
        if name.startswith(theirs):
            return ours + name.removeprefix(theirs)
    raise KeyError(name)


def tiny_network(bias: bool) -> Callable[..., nn.Module]:
    def builder(num_classes: int, **_: Any) -> nn.Module:
        backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, FEATURES, 3, 2, 1, bias=False),
            nn.BatchNorm2d(FEATURES),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        return ClassifierNet(backbone, FEATURES, num_classes, bias)

    return builder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four domains of seven classes; the images themselves are never looked at."""
    root = tmp_path_factory.mktemp("images")
    for domain in range(DOMAINS + 1):
        for label in range(CLASSES):
            folder = root / f"domain{domain}" / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(3):
                Image.new("RGB", (12, 12), (40 * domain, 30 * label, 60 * number)).save(folder / f"{number}.png")
    return root


class Released:
    """One fixture, and our algorithm in the same state."""

    def __init__(self, name: str, images: Path, cache: Path, **values: Any) -> None:
        self.numbers = dict(np.load(FIXTURES / f"{name}.npz"))
        bias = "before/C.linear.bias" in self.numbers
        base = name.partition("_")[0]
        threshold = {} if base == "erm" else {"p_cutoff": float(self.numbers["threshold"])}
        form = {"loss_form": "reference"} if name.endswith("upcsc") else {}
        settings = settings_from(
            **{
                "algorithm": name,
                "step": "reference",
                "dataset": "folder",
                "data_dir": str(images),
                "cache_dir": str(cache),
                "target_domain": "domain3",
                "labels_per_class": 1,
                "batch_size": DOMAINS * IMAGES,
                "img_size": 12,
                "device": "cpu",
                "num_train_iter": 1,
                **threshold,
                **form,
                **values,
            }
        )
        context = make_context(settings)
        self.algorithm: Any = training.build(context, tiny_network(bias), training.silent_logger())
        self.algorithm.model.double()
        state = {here(k.removeprefix("before/")): v for k, v in self.numbers.items() if k.startswith("before/")}
        own = self.algorithm.model.state_dict()
        assert state.keys() <= own.keys()
        own.update({name: torch.from_numpy(np.asarray(value)) for name, value in state.items()})
        self.algorithm.model.load_state_dict(own)
        self._feed_random_draws()

    def _feed_random_draws(self) -> None:
        classifier = find_classifier(self.algorithm.model)
        if "noise" in self.numbers:
            drawn = torch.from_numpy(self.numbers["noise"])
            # One draw per supervised and unsupervised pass; the recorded run of StyleMatch made one more before them.
            passes = DOMAINS * (2 if "loss_u_sty" not in self.numbers else 3)
            remaining = iter((drawn.squeeze(1) if drawn.shape[1] == 1 else drawn)[-passes:])
            classifier.draw = lambda count: torch.stack([next(remaining) for _ in range(count)])  # type: ignore
        if "styled" in self.numbers:
            styled = list(torch.from_numpy(self.numbers["styled"]))
            self.algorithm.encodings = lambda stream, plain, numbers: plain
            self.algorithm.styled = lambda encodings: styled
        if "prototypes" in self.numbers:
            plugin = self.algorithm.plugins["fbcsa"]
            plugin.prototypes.copy_(torch.from_numpy(self.numbers["prototypes"]))
            draws = tuple(torch.from_numpy(self.numbers[name]) for name in ("other_domain", "last_rank"))
            plugin.draw = lambda: draws

    def step(self) -> StepLoss:
        views = {"x_lb": "x_weak", "x_lb_s": "x_strong", "x_lb_p": "x_plain"}
        views |= {"x_ulb_w": "u_weak", "x_ulb_s": "u_strong", "x_ulb_p": "u_plain", "y_lb": "y"}
        batch = {ours: torch.from_numpy(self.numbers[theirs]) for ours, theirs in views.items()}
        numbers = torch.arange(DOMAINS * IMAGES)
        domain = numbers // IMAGES
        self.algorithm.model.train()
        outcome: StepLoss = self.algorithm.step(**batch, idx_lb=numbers, idx_ulb=numbers, d_lb=domain, d_ulb=domain)
        outcome.total.backward()
        return outcome

    def number(self, name: str) -> float:
        return float(self.numbers[name])


ALL = sorted(path.stem for path in FIXTURES.glob("*.npz"))


@pytest.fixture(params=ALL)
def released(request: pytest.FixtureRequest, images: Path, cache_dir: Path, adain_dir: Path) -> Released:
    return Released(request.param, images, cache_dir, adain_dir=str(adain_dir))


def test_there_is_a_fixture_for_every_released_trainer() -> None:
    assert {
        "erm",
        "fixmatch",
        "stylematch",
        "fixmatch_upcsc",
        "stylematch_upcsc",
        "fixmatch_fbcsa",
        "fixmatch_dgwm",
    } <= set(ALL)


def test_losses_gradients_and_statistics_equal_the_released_ones(released: Released) -> None:
    outcome = released.step()
    terms = outcome.terms
    assert outcome.total.item() == pytest.approx(released.number("loss_total"), abs=1e-9)
    for theirs, ours in LOSSES.items():
        if theirs in released.numbers and f"train/{ours}" in terms:
            assert float(terms[f"train/{ours}"]) == pytest.approx(released.number(theirs), abs=1e-9), theirs
    if "loss_upcsc" in released.numbers:
        assert float(terms["train/upc"] + terms["train/sc"]) == pytest.approx(released.number("loss_upcsc"), abs=1e-9)
    if "loss_SA" in released.numbers:
        assert float(terms["train/sa"]) * terms["train/sa_weight"] == pytest.approx(
            released.number("loss_SA"), abs=1e-9
        )
        assert float(terms["train/fbc"]) * terms["train/fbc_weight"] == pytest.approx(
            released.number("loss_u_FBC"), abs=1e-9
        )
    _compare_gradients(released)
    _compare_statistics(released)


def _compare_gradients(released: Released) -> None:
    expected = {here(k.removeprefix("grad/")): v for k, v in released.numbers.items() if k.startswith("grad/")}
    parameters = dict(released.algorithm.model.named_parameters())
    assert parameters.keys() <= expected.keys()
    for name, parameter in parameters.items():
        assert parameter.grad is not None, name
        torch.testing.assert_close(
            parameter.grad, torch.from_numpy(expected[name]), **CLOSE, msg=lambda m, n=name: f"{n}: {m}"
        )


def _compare_statistics(released: Released) -> None:
    expected = {here(k.removeprefix("after/")): v for k, v in released.numbers.items() if k.startswith("after/")}
    state: dict[str, Tensor] = dict(released.algorithm.model.named_buffers())
    checked = [name for name in expected if "running" in name or "tracked" in name]
    assert len(checked) == 6
    for name in checked:
        torch.testing.assert_close(state[name], torch.from_numpy(np.asarray(expected[name])), **CLOSE)
