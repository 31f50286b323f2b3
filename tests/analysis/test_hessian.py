"""Hessian products and eigenvalues compared with the dense Hessian of a small network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from semilearn_ext.analysis.hessian import Batches, Loss, largest_eigenpairs


class SmallNet(nn.Module):
    """Every relevant kind of layer, and a part that the logits do not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(3, 3)
        self.body = nn.Sequential(
            nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten()
        )
        self.classifier = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        feat = self.body(x)
        return {"logits": self.classifier(feat), "feat": feat}


@pytest.fixture
def net() -> SmallNet:
    torch.manual_seed(0)
    net = SmallNet()
    net(torch.randn(64, 3, 6, 6))  # running statistics that are not those of a new layer
    return net.eval()


@pytest.fixture
def images() -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(30, 3, 6, 6, generator=rng), torch.randint(4, (30,), generator=rng)


def in_batches(images: tuple[Tensor, Tensor], size: int) -> Batches:
    x, y = images
    return lambda: zip(x.split(size), y.split(size), strict=True)


def dense_hessian(net: SmallNet, images: tuple[Tensor, Tensor]) -> Tensor:
    """All second derivatives by the weights in use, in float64, by differentiating a flat vector twice."""
    fixed = {name: value.double() for name, value in net.state_dict().items()}
    used = {name: p.detach().double() for name, p in net.named_parameters() if not name.startswith("unused")}
    x, y = images

    def loss(flat: Tensor) -> Tensor:
        parts = flat.split([value.numel() for value in used.values()])
        moved = {name: part.view_as(used[name]) for name, part in zip(used, parts, strict=True)}
        return F.cross_entropy(functional_call(net, {**fixed, **moved}, (x.double(),))["logits"], y)

    hessian: Tensor = torch.autograd.functional.hessian(loss, parameters_to_vector(used.values()))
    return hessian


@pytest.mark.parametrize("size", [30, 7])
def test_products_are_those_of_the_dense_hessian(net: SmallNet, images: tuple[Tensor, Tensor], size: int) -> None:
    loss = Loss(net, in_batches(images, size), torch.float64)
    dense = dense_hessian(net, images).numpy()
    assert loss.size == len(dense) == 84 + 6 + 52
    vectors = np.random.default_rng(2).standard_normal((3, len(dense)))
    for vector in vectors:
        np.testing.assert_allclose(loss.hessian_times(vector), dense @ vector, rtol=0, atol=1e-8)


def test_eigenvalues_are_those_of_the_dense_hessian(net: SmallNet, images: tuple[Tensor, Tensor]) -> None:
    loss = Loss(net, in_batches(images, 8), torch.float64)
    values, vectors = np.linalg.eigh(dense_hessian(net, images).numpy())
    eigenpairs = largest_eigenpairs(loss.hessian_times, loss.size, 2, tolerance=0)
    np.testing.assert_allclose(eigenpairs.values, values[:-3:-1], rtol=0, atol=1e-8)
    for number, vector in enumerate(eigenpairs.vectors):
        assert np.linalg.norm(vector) == pytest.approx(1)
        assert abs(vector @ vectors[:, -1 - number]) == pytest.approx(1, abs=1e-8)
        assert vector[np.abs(vector).argmax()] > 0
    assert (eigenpairs.residuals < 1e-8).all()


def test_a_residual_bounds_the_error(net: SmallNet, images: tuple[Tensor, Tensor]) -> None:
    loss = Loss(net, in_batches(images, 30), torch.float64)
    exact = np.linalg.eigvalsh(dense_hessian(net, images).numpy())
    rough = largest_eigenpairs(loss.hessian_times, loss.size, 2, tolerance=0.3)
    for value, residual in zip(rough.values, rough.residuals, strict=True):
        assert np.abs(exact - value).min() <= residual + 1e-12


def test_eigenpairs_are_the_same_every_time(net: SmallNet, images: tuple[Tensor, Tensor]) -> None:
    loss = Loss(net, in_batches(images, 8), torch.float64)
    first, second = (largest_eigenpairs(loss.hessian_times, loss.size, 2, tolerance=1e-3) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    np.testing.assert_array_equal(first.vectors, second.vectors)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_loss_at_other_weights_equals_that_of_a_changed_network(
    net: SmallNet, images: tuple[Tensor, Tensor], dtype: torch.dtype
) -> None:
    loss = Loss(net, in_batches(images, 7), dtype)
    flat = np.random.default_rng(3).standard_normal((2, loss.size))
    value = loss.at((0.1, loss.split(flat[0])), (-0.2, loss.split(flat[1])))
    with torch.no_grad():
        assert loss.at() == pytest.approx(float(F.cross_entropy(net(images[0])["logits"], images[1])), rel=1e-5)
        step = torch.from_numpy(0.1 * flat[0] - 0.2 * flat[1]).float()
        used = [p for name, p in net.named_parameters() if not name.startswith("unused")]
        for parameter, part in zip(used, step.split([p.numel() for p in used]), strict=True):
            parameter += part.view_as(parameter)
        expected = float(F.cross_entropy(net(images[0])["logits"], images[1]))
    assert value == pytest.approx(expected, rel=1e-5)


def test_the_network_is_not_changed(net: SmallNet, images: tuple[Tensor, Tensor]) -> None:
    before = {name: value.clone() for name, value in net.state_dict().items()}
    loss = Loss(net, in_batches(images, 7), torch.float64)
    eigenpairs = largest_eigenpairs(loss.hessian_times, loss.size, 2, tolerance=1e-2)
    loss.at((0.5, loss.split(eigenpairs.vectors[0])))
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name
        assert value.dtype == before[name].dtype
    assert all(parameter.grad is None and parameter.requires_grad for parameter in net.parameters())
    assert not net.training
