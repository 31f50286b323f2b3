"""FBCSA compared with numbers of the released code and with plain loops, and which images have a gradient."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from semilearn_ext.losses import fbcsa_loss

FIXTURE = Path(__file__).parents[1] / "fixtures" / "rivals" / "fbcsa.npz"


def test_the_loss_equals_the_released_code() -> None:
    inputs = {name: torch.from_numpy(value) for name, value in np.load(FIXTURE).items()}
    domains, images, _ = inputs["feat"].shape
    loss = fbcsa_loss(
        inputs["feat"].flatten(0, 1),
        inputs["proto"],
        inputs["label"].flatten(),
        inputs["mask"].flatten(),
        torch.arange(domains).repeat_interleave(images),
        inputs["other_domain"],
        inputs["last_rank"],
    )
    assert 0.1 * float(loss.fbc) == pytest.approx(float(inputs["loss_fbc_sum_over_domains"]), abs=1e-10)
    assert 0.5 * float(loss.sa) == pytest.approx(float(inputs["loss_sa_sum_over_domains"]), abs=1e-10)


def random_inputs(seed: int) -> dict[str, Tensor]:
    """Three domains of unequal size in mixed order."""
    rng = torch.Generator().manual_seed(seed)
    return {
        "features": torch.randn(17, 6, generator=rng, dtype=torch.float64),
        "prototypes": 0.6 * torch.randn(3, 9, 6, generator=rng, dtype=torch.float64),
        "pseudo_label": torch.randint(9, (17,), generator=rng),
        "confident": torch.rand(17, generator=rng) < 0.6,
        "domain": torch.cat([torch.arange(3), torch.randint(3, (14,), generator=rng)]),
        "other_domain": torch.tensor([2, 0, 1]),
        "last_rank": torch.tensor([2, 4, 3]),
    }


def by_loops(
    features: Tensor,
    prototypes: Tensor,
    pseudo_label: Tensor,
    confident: Tensor,
    domain: Tensor,
    other_domain: Tensor,
    last_rank: Tensor,
) -> tuple[float, float]:
    fbc_sum = sa_sum = 0.0
    for d in range(len(prototypes)):
        members = [i for i in range(len(features)) if int(domain[i]) == d]
        for i in members:
            if not confident[i]:
                continue
            z = features[i] / features[i].norm()
            own = [float(z @ p) for p in prototypes[d]]
            other = [float(z @ p) for p in prototypes[int(other_domain[d])]]
            y = int(pseudo_label[i])
            for s in (own, other):
                fbc_sum += (math.log(sum(math.exp(v) for v in s)) - s[y]) / len(members)
            ranked = sorted(own, reverse=True)
            wrong = ranked[1 : int(last_rank[d])]
            best = own.index(ranked[0])
            sa_sum += (2 - ranked[0] - other[best] + sum(wrong) / len(wrong)) / len(members)
    return fbc_sum, sa_sum


@pytest.mark.parametrize("seed", range(5))
def test_the_loss_equals_plain_loops(seed: int) -> None:
    inputs = random_inputs(seed)
    assert [float(part) for part in fbcsa_loss(**inputs)] == pytest.approx(by_loops(**inputs), abs=1e-12)


def test_only_confident_images_have_a_gradient() -> None:
    inputs = random_inputs(0)
    for part in (0, 1):
        features = inputs["features"].clone().requires_grad_()
        fbcsa_loss(**{**inputs, "features": features})[part].backward()
        assert features.grad is not None
        has_gradient = features.grad.abs().sum(1) > 0
        assert torch.equal(has_gradient, inputs["confident"])


def test_loss_and_gradient_are_zero_without_confident_images() -> None:
    inputs = random_inputs(1)
    features = inputs["features"].clone().requires_grad_()
    loss = fbcsa_loss(**{**inputs, "features": features, "confident": torch.zeros(17, dtype=torch.bool)})
    (loss.fbc + loss.sa).backward()
    assert loss.fbc.item() == loss.sa.item() == 0.0
    assert features.grad is not None
    assert not features.grad.any()
