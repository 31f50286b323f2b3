"""A recorded training step of a released trainer: it is read from a file, repeated with this package, and compared.

Everything (domains, images, classes, layers, biases, noise) is taken from the file, so a step recorded with another
seed, other shapes or other draws only has to be put into ``tests/fixtures/steps`` under the name of its method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
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
from semilearn_ext.plugins.base import Wants
from semilearn_ext.settings import settings_from

CLOSE = {"rtol": 0.0, "atol": 1e-9}

# Names of parameters in the released code -> names in this package.
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
# Losses in the released code -> the logged terms whose weighted sum they are.
LOSSES = {
    "loss_x": ("sup_loss",),
    "loss_u_aug": ("unsup_loss",),
    "loss_u_sty": ("style_loss",),
    "loss_upcsc": ("upc", "sc"),
    "loss_u_FBC": ("fbc",),
    "loss_SA": ("sa",),
    "loss_total": ("total_loss",),
}
VIEWS = {
    "x_lb": "x_weak",
    "x_lb_s": "x_strong",
    "x_lb_p": "x_plain",
    "x_ulb_w": "u_weak",
    "x_ulb_s": "u_strong",
    "x_ulb_p": "u_plain",
    "y_lb": "y",
}
# Forward passes of a step: per domain, and of all domains together.
PASSES = {
    "erm": (2, 0),
    "fixmatch": (3, 0),
    "stylematch": (4, 0),
    "fixmatch_upcsc": (3, 2),
    "stylematch_upcsc": (4, 3),
    "fixmatch_fbcsa": (4, 0),
    "stylematch_fbcsa": (5, 0),
    "fixmatch_dgwm": (3, 0),
    "stylematch_dgwm": (4, 0),
}


def method_of(stem: str) -> str:
    """The method that a file is named after: ``fixmatch_upcsc_seed2`` holds a step of ``fixmatch_upcsc``."""
    return max((name for name in PASSES if f"{stem}_".startswith(f"{name}_")), key=len)


def our_name(name: str) -> str:
    for recorded, own in NAMES.items():
        if name.startswith(recorded):
            return own + name.removeprefix(recorded)
    raise KeyError(name)


class ReleasedStep:
    """The content of a file, and the sizes that follow from it."""

    def __init__(self, method: str, numbers: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.method = method
        self.numbers = {name: torch.from_numpy(np.asarray(value)) for name, value in numbers.items()}

    @classmethod
    def read(cls, path: Path) -> ReleasedStep:
        return cls(method_of(path.stem), dict(np.load(path)))

    def under(self, folder: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(f"{folder}/"): value
            for name, value in self.numbers.items()
            if name.startswith(f"{folder}/")
        }

    @cached_property
    def domains(self) -> int:
        """From the passes that batch norm has counted."""
        before, after = self.under("before"), self.under("after")
        counter = next(name for name in after if name.endswith("num_batches_tracked"))
        by_domain, mixed = PASSES[self.method]
        domains, rest = divmod(int(after[counter]) - int(before[counter]) - mixed, by_domain)
        assert rest == 0, "the number of passes in the file is not that of a released step"
        return domains

    @cached_property
    def classes(self) -> int:
        before = self.under("before")
        return len(next(before[name] for name in ("C.linear.weight", "C.mu", "C.w") if name in before))

    @cached_property
    def statistics(self) -> dict[str, Tensor]:
        """Running statistics of batch norm after the step, by their names in this package."""
        return {our_name(k): v for k, v in self.under("after").items() if "running" in k or "tracked" in k}

    def backbone(self) -> nn.Sequential:
        """Convolutions of stride two and batch norms, each of the latter with a ReLU, then the mean over positions."""
        state = {k.removeprefix("G."): v for k, v in self.under("before").items() if k.startswith("G.")}
        layers: list[nn.Module] = []
        for number in sorted({int(name.split(".")[0]) for name in state}):
            assert number == len(layers)
            weight, bias = state[f"{number}.weight"], f"{number}.bias" in state
            if weight.ndim == 4:
                out, channels, size, _ = weight.shape
                layers.append(nn.Conv2d(channels, out, size, 2, size // 2, bias=bias))
            else:
                layers += [nn.BatchNorm2d(len(weight)), nn.ReLU()]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
        network.load_state_dict(state)
        return network

    def noise(self, shape: torch.Size) -> Tensor:
        """(G, *shape): one draw per supervised and unsupervised pass. A recorded run may have drawn before them."""
        views = 2 if self.method.startswith("stylematch") else 1
        draws = self.numbers["noise"].reshape(-1, *shape)
        return draws[-self.domains * (1 + views) :]


class Repeated:
    """Our algorithm in the state before a recorded step."""

    def __init__(self, recorded: ReleasedStep, images: Path, **values: Any) -> None:
        self.recorded, numbers = recorded, recorded.numbers
        labelled, unlabelled = len(numbers["x_weak"]), len(numbers["u_weak"])
        defaults: dict[str, Any] = {
            "algorithm": recorded.method,
            "step": "reference",
            "dataset": "folder",
            "data_dir": str(images),
            "target_domain": f"domain{recorded.domains}",
            "labels_per_class": 1,
            "batch_size": labelled,
            "uratio": unlabelled // labelled,
            "img_size": numbers["x_weak"].shape[-1],
            "device": "cpu",
            "num_train_iter": 1,
        }
        if recorded.method != "erm":
            defaults["p_cutoff"] = float(numbers["threshold"])
        if recorded.method.endswith("upcsc"):
            defaults["loss_form"] = "reference"
        context = make_context(settings_from(**{**defaults, **values}))
        self.algorithm: Any = training.build(context, self._network(), training.silent_logger())
        self.algorithm.model.double()
        own = self.algorithm.model.state_dict()
        state = {our_name(name): value for name, value in recorded.under("before").items()}
        assert state.keys() <= own.keys()
        self.algorithm.model.load_state_dict({**own, **state})
        self._replay_random_draws()

    def _network(self) -> Callable[..., nn.Module]:
        backbone = self.recorded.backbone()
        features = next(layer for layer in reversed(backbone) if isinstance(layer, nn.BatchNorm2d)).num_features
        bias = "before/C.linear.bias" in self.recorded.numbers
        return lambda num_classes, **_: ClassifierNet(backbone, features, num_classes, bias)

    def _replay_random_draws(self) -> None:
        numbers = self.recorded.numbers
        classifier: Any = find_classifier(self.algorithm.model)
        if "noise" in numbers:
            remaining = iter(self.recorded.noise(classifier.draw(1).shape[1:]))
            classifier.draw = lambda count: torch.stack([next(remaining) for _ in range(count)])
        if "styled" in numbers:
            styled = list(numbers["styled"])
            self.algorithm.encodings = lambda stream, plain, images: plain
            self.algorithm.styled = lambda encodings: styled
        if "prototypes" in numbers:
            plugin = self.algorithm.plugins["fbcsa"]
            plugin.prototypes.copy_(numbers["prototypes"])
            plugin.draw = lambda: (numbers["other_domain"], numbers["last_rank"])

    def step(self) -> StepLoss:
        batch = {name: self.recorded.numbers[recorded_name] for name, recorded_name in VIEWS.items()}
        for stream, images in (("lb", batch["x_lb"]), ("ulb", batch["x_ulb_w"])):
            position = torch.arange(len(images))
            batch |= {f"idx_{stream}": position, f"d_{stream}": position // (len(images) // self.recorded.domains)}
        self.algorithm.model.train()
        outcome: StepLoss = self.algorithm.step(**batch)
        outcome.total.backward()
        return outcome

    def compare(self) -> None:
        """Take the step, and check that all losses, gradients and statistics equal those in the file."""
        outcome = self.step()
        self._compare_losses(outcome)
        self._compare_gradients()
        buffers = dict(self.algorithm.model.named_buffers())
        for name, value in self.recorded.statistics.items():
            torch.testing.assert_close(buffers[name], value, **CLOSE, msg=lambda m, n=name: f"{n}: {m}")

    def _compare_losses(self, outcome: StepLoss) -> None:
        numbers, terms = self.recorded.numbers, outcome.terms
        assert outcome.total.item() == pytest.approx(float(numbers["loss_total"]), abs=1e-9)
        for recorded_name in sorted(name for name in numbers if name.startswith("loss_")):
            parts = LOSSES[recorded_name]
            if parts == ("total_loss",) and "train/total_loss" not in terms:
                continue  # ERM has one loss
            value = sum(float(terms[f"train/{n}"]) * float(terms.get(f"train/{n}_weight", 1.0)) for n in parts)
            assert value == pytest.approx(float(numbers[recorded_name]), abs=1e-9), recorded_name
        if "keep_rate_unlabelled" in numbers and self.recorded.method.endswith("upcsc"):
            keep_rate = self.algorithm.step_output(Wants()).mask.double().mean()
            assert float(keep_rate) == pytest.approx(float(numbers["keep_rate_unlabelled"]), abs=1e-6)

    def _compare_gradients(self) -> None:
        expected = {our_name(name): value for name, value in self.recorded.under("grad").items()}
        parameters = dict(self.algorithm.model.named_parameters())
        assert expected.keys() <= parameters.keys()
        for name, parameter in parameters.items():
            zero = torch.zeros_like(
                parameter
            )  # parameters that the released loss does not use have no gradient in the file
            gradient = zero if parameter.grad is None else parameter.grad
            torch.testing.assert_close(gradient, expected.get(name, zero), **CLOSE, msg=lambda m, n=name: f"{n}: {m}")


def make_images(root: Path, domains: int, classes: int) -> Path:
    """A folder with a target domain in addition to the source domains; the content of its images is never used."""
    folder = root / f"{domains}x{classes}"
    if not folder.exists():
        for domain in range(domains + 1):
            for label in range(classes):
                (folder / f"domain{domain}" / f"class{label}").mkdir(parents=True)
                for number in range(3):
                    image = Image.new("RGB", (4, 4), (20 * domain, 20 * label, 60 * number))
                    image.save(folder / f"domain{domain}" / f"class{label}" / f"{number}.png")
    return folder
