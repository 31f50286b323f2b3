"""UPC and SC compared with stored cases and with plain loops over pairs, and edge cases."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from semilearn_ext.losses import upcsc_loss
from semilearn_ext.losses.upcsc import FORMS, REFERENCE_FLOOR, SURROGATES
from tests.losses.pair_loops import oracle

FIXTURES = Path(__file__).parents[1] / "fixtures" / "upcsc"
CASES = ("all_confident", "none_confident", "office_like", "one_sample", "pacs_like", "style_three_views")
OPTIONS: dict[str, Any] = {
    "loss_form": st.sampled_from(FORMS),
    "temperature": st.sampled_from((1.0, 0.5, 0.2, 1 / 12)),
    "surrogate": st.sampled_from(SURROGATES),
    "unconfident_negatives": st.booleans(),
}

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def make_batch(
    n_views: int = 12,
    n_classes: int = 5,
    dim: int = 8,
    seed: int = 0,
    confident_share: float = 0.5,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    z = F.normalize(torch.randn(n_views, dim, generator=generator, dtype=dtype)).requires_grad_()
    w = F.normalize(torch.randn(n_classes, dim, generator=generator, dtype=dtype)).requires_grad_()
    prob = torch.softmax(3 * torch.randn(n_views, n_classes, generator=generator, dtype=dtype), 1)
    return z, w, prob, torch.rand(n_views, generator=generator) < confident_share


def gradients(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs, retain_graph=True)


def assert_all_finite(batch: Batch, **options: Any) -> None:
    z, w, *_ = batch
    out = upcsc_loss(*batch, **options)
    for value in (*out, *gradients(out.upc, z, w), *gradients(out.sc, z, w)):
        assert value.isfinite().all()


def assert_equals_oracle(batch: Batch, **options: Any) -> None:
    z, w, _, confident = batch
    off_floor = (z @ z.T - REFERENCE_FLOOR).abs() > 1e-9
    assume(options["loss_form"] == "paper" or bool(off_floor.all()))
    out = upcsc_loss(*batch, **options)
    upc, sc, used = oracle(*batch, **options)
    for fast, slow in ((out.upc, upc), (out.sc, sc)):
        torch.testing.assert_close(fast, slow, rtol=0, atol=1e-12)
        for fast_gradient, slow_gradient in zip(gradients(fast, z, w), gradients(slow, z, w), strict=True):
            torch.testing.assert_close(fast_gradient, slow_gradient, rtol=0, atol=1e-12)
    assert float(out.negative_share) == pytest.approx(used / max(1, len(z) * (len(z) - 1)))
    assert float(out.confident_share) == pytest.approx(confident.double().mean().item())


@settings(max_examples=150, deadline=None)
@given(
    n_views=st.integers(1, 9),
    n_classes=st.integers(1, 6),
    dim=st.integers(1, 5),
    seed=st.integers(0, 10**6),
    confident_share=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
    options=st.fixed_dictionaries(OPTIONS),
)
def test_equals_loops_over_pairs(
    n_views: int, n_classes: int, dim: int, seed: int, confident_share: float, options: dict[str, Any]
) -> None:
    assert_equals_oracle(make_batch(n_views, n_classes, dim, seed, confident_share), **options)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), n_views=st.integers(1, 6), n_classes=st.integers(2, 5), options=st.fixed_dictionaries(OPTIONS))
def test_equals_loops_over_pairs_with_ties(
    data: st.DataObject, n_views: int, n_classes: int, options: dict[str, Any]
) -> None:
    """Few distinct confidences: equal maxima, confidences of exactly 1 / C, empty and full candidate sets."""
    levels = st.sampled_from([0.0, 1 / n_classes, 0.5, 1.0])
    prob = [data.draw(st.lists(levels, min_size=n_classes, max_size=n_classes)) for _ in range(n_views)]
    confident = data.draw(st.lists(st.booleans(), min_size=n_views, max_size=n_views))
    z, w, *_ = make_batch(n_views, n_classes)
    assert_equals_oracle((z, w, torch.tensor(prob, dtype=torch.float64), torch.tensor(confident)), **options)


# --- the stored cases ---


@pytest.mark.parametrize("case", CASES)
def test_stored_case(case: str) -> None:
    path = FIXTURES / f"{case}.npz"
    with np.load(path) as arrays:
        stored = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    feat, proxy = stored["feat"].requires_grad_(), stored["proxy"].requires_grad_()
    z = F.normalize(feat @ stored["fp_weight"].T + stored["fp_bias"])
    w = F.normalize(proxy @ stored["cp_weight"].T)
    paper = upcsc_loss(z, w, stored["prob"], stored["conf"])
    reference = upcsc_loss(z, w, stored["prob"], stored["conf"], loss_form="reference")
    for name, loss in (("upc", paper.upc), ("sc", paper.sc), ("reference", reference.upc + reference.sc)):
        torch.testing.assert_close(loss, stored[f"loss_{name}"], rtol=0, atol=1e-10)
        grad_feat, grad_proxy = gradients(loss, feat, proxy)
        torch.testing.assert_close(grad_feat, stored[f"grad_{name}_feat"], rtol=0, atol=1e-10)
        torch.testing.assert_close(grad_proxy, stored[f"grad_{name}_proxy"], rtol=0, atol=1e-10)


# --- properties ---

every_option = pytest.mark.parametrize(
    "options",
    [
        {"loss_form": form, "surrogate": surrogate, "unconfident_negatives": unconfident_negatives}
        for form in FORMS
        for surrogate in SURROGATES
        for unconfident_negatives in (True, False)
    ],
    ids=lambda options: "-".join(str(value) for value in options.values()),
)


@every_option
def test_order_of_views_and_of_classes_does_not_matter(options: dict[str, Any]) -> None:
    z, w, prob, confident = make_batch()
    views, classes = torch.randperm(len(z)), torch.randperm(len(w))
    shuffled = upcsc_loss(z[views], w[classes], prob[views][:, classes], confident[views], **options)
    torch.testing.assert_close(tuple(shuffled), tuple(upcsc_loss(z, w, prob, confident, **options)))


@every_option
@pytest.mark.parametrize("confident_share", [0.0, 1.0])
def test_batches_with_only_confident_or_only_unconfident_views(options: dict[str, Any], confident_share: float) -> None:
    z, w, prob, confident = make_batch(confident_share=confident_share)
    out = upcsc_loss(z, w, prob, confident, **options)
    empty, full = (out.sc, out.upc) if confident_share else (out.upc, out.sc)
    assert empty == 0
    assert full > 0
    for gradient in gradients(empty, z, w):
        assert (gradient == 0).all()


@every_option
def test_one_view_has_no_loss(options: dict[str, Any]) -> None:
    for confident_share in (0.0, 1.0):
        z, w, prob, confident = make_batch(n_views=1, confident_share=confident_share)
        out = upcsc_loss(z, w, prob, confident, **options)
        assert out.upc == out.sc == out.negative_share == 0
        for gradient in gradients(out.upc + out.sc, z, w):
            assert (gradient == 0).all()


def test_views_of_one_image_are_not_negatives() -> None:
    z, w, prob, confident = make_batch(n_views=2)
    out = upcsc_loss(z, w, prob[:1].expand(2, -1), confident[:1].expand(2))
    assert out.upc == out.sc == out.negative_share == 0


def test_two_classes_by_hand() -> None:
    z, w = torch.tensor([[1.0, 0.0], [0.6, 0.8]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    prob = torch.tensor([[0.98, 0.02], [0.4, 0.6]])
    out = upcsc_loss(z, w, prob, torch.tensor([True, False]))
    assert out.upc.item() == pytest.approx(-math.log(math.exp(1) / (math.exp(1) + math.exp(0.6))))
    surrogate = 0.6 * 0.8
    assert out.sc.item() == pytest.approx(-math.log(math.exp(surrogate) / (math.exp(surrogate) + math.exp(0.6))))
    assert [out.confident_share, out.candidates, out.negative_share] == [0.5, 1, 1]


@pytest.mark.parametrize("n_classes", [2, 3, 7, 49, 345])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_uniform_confidences_have_no_candidates(n_classes: int, dtype: torch.dtype) -> None:
    """The surrogate is then the zero vector, and all other views are negatives."""
    z, w, _, _ = make_batch(4, n_classes, dtype=dtype)
    prob = torch.full((4, n_classes), 1 / n_classes, dtype=dtype)
    out = upcsc_loss(z, w, prob, torch.zeros(4, dtype=torch.bool))
    assert out.candidates == 0
    assert out.negative_share == 1
    others = (z @ z.T).exp().fill_diagonal_(0).sum(1)
    torch.testing.assert_close(out.sc, torch.log1p(others).mean())
    assert (gradients(out.sc, z)[0] != 0).any(1).all()
    for surrogate in SURROGATES:
        assert_all_finite((z, w, prob, torch.zeros(4, dtype=torch.bool)), surrogate=surrogate)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    surrogate=st.sampled_from(SURROGATES),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_a_view_with_a_negative_gets_a_gradient(seed: int, surrogate: str, dtype: torch.dtype) -> None:
    z, w, prob, confident = make_batch(6, 4, 3, seed, dtype=dtype)
    prob, confident = prob[[0, 1, 2] * 2], confident[[0, 1, 2] * 2]
    out = upcsc_loss(z, w, prob, confident, surrogate=surrogate)
    gradient = gradients(out.upc + out.sc, z)[0]
    possible = [
        {int(prob[i].argmax())} if confident[i] else set(torch.nonzero(prob[i] > 1 / 4).flatten().tolist())
        for i in range(6)
    ]
    for i in range(6):
        has_negative = any(not possible[i] & possible[j] for j in range(6) if j != i)
        assert bool((gradient[i] != 0).any()) == has_negative


def test_opposite_views_still_get_a_gradient() -> None:
    """The most distant negative and the nearest positive, in float32."""
    w = torch.eye(2).requires_grad_()
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    out = upcsc_loss(z, w, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([True, True]))
    assert all((gradient != 0).any(1).all() for gradient in gradients(out.upc, z, w))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e3, 1e15])
@pytest.mark.parametrize("form", FORMS)
def test_finite_for_rows_that_are_not_unit_vectors(scale: float, form: str) -> None:
    z, w, prob, confident = make_batch(dtype=torch.float32)
    scaled = (z * scale).detach().requires_grad_()
    assert_all_finite((scaled, w, prob, confident), loss_form=form)
    assert_all_finite((scaled, w, torch.eye(5).repeat(3, 1)[:12], confident), loss_form=form)
    assert_all_finite((scaled, w, torch.zeros(12, 5), confident), loss_form=form)
    assert_all_finite((scaled, w, torch.full((12, 5), math.nan), confident), loss_form=form)


def test_no_gradient_flows_into_confidences_and_diagnostics() -> None:
    z, w, prob, confident = make_batch()
    prob.requires_grad_()
    out = upcsc_loss(z, w, prob, confident)
    (out.upc + out.sc).backward()
    assert prob.grad is None
    assert z.grad is not None
    assert w.grad is not None
    assert all(value.ndim == 0 for value in out)
    assert not any(value.requires_grad for value in out[2:])


def test_reference_is_one_mean_over_all_views() -> None:
    z, w, prob, confident = make_batch()
    positive_z = F.normalize(
        z.abs().detach()
    ).requires_grad_()  # all similarities are above the floor, so none is dropped
    paper, reference = (upcsc_loss(positive_z, w, prob, confident, loss_form=form) for form in FORMS)
    share = confident.double().mean()
    torch.testing.assert_close(reference.upc, share * paper.upc)
    torch.testing.assert_close(reference.sc, (1 - share) * paper.sc)


def test_first_and_second_derivatives() -> None:
    for form in FORMS:
        z, w, prob, confident = make_batch(6, 4, 3)

        def losses(
            z: Tensor, w: Tensor, prob: Tensor = prob, confident: Tensor = confident, form: str = form
        ) -> tuple[Tensor, Tensor]:
            out = upcsc_loss(z, w, prob, confident, loss_form=form)
            return out.upc, out.sc

        assert torch.autograd.gradcheck(losses, (z, w))
        assert torch.autograd.gradgradcheck(losses, (z, w))
        assert torch.autograd.gradgradcheck(lambda w, z=z, losses=losses: losses(z.detach(), w), (w,))


# --- precision, memory, messages ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS)
def test_autocast_changes_nothing(dtype: torch.dtype, form: str) -> None:
    batch = make_batch(dtype=dtype)
    outside = upcsc_loss(*batch, loss_form=form)
    expected = gradients(outside.upc + outside.sc, *batch[:2])
    with torch.autocast("cpu", torch.bfloat16):
        inside = upcsc_loss(*batch, loss_form=form)
    assert inside.upc.dtype == inside.sc.dtype == dtype
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))
    for a, b in zip(gradients(inside.upc + inside.sc, *batch[:2]), expected, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_inputs_are_computed_in_float32(half: torch.dtype) -> None:
    z, w, prob, confident = make_batch(dtype=torch.float32)
    z, w, prob = (tensor.detach().to(half) for tensor in (z, w, prob))
    wide = upcsc_loss(z.float(), w.float(), prob.float(), confident)
    z.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        out = upcsc_loss(z, w, prob, confident)
    assert out.upc.dtype == torch.float32
    assert torch.equal(out.upc, wide.upc)
    assert torch.equal(out.sc, wide.sc)
    assert gradients(out.upc + out.sc, z)[0].dtype == half


class Sizes(TorchDispatchMode):
    """Records the size of every tensor that an operation returns, and the name of every operation."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[int] = []
        self.operations: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.elements += [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        self.operations.add(func.name())
        return out


@every_option
def test_no_large_tensor_and_no_wait_for_the_device(options: dict[str, Any]) -> None:
    n_views, n_classes, dim = 64, 50, 16
    batch = make_batch(n_views, n_classes, dim, dtype=torch.float32)
    with Sizes() as sizes:
        out = upcsc_loss(*batch, **options)
        (out.upc + out.sc).backward()
    assert max(sizes.elements) <= max(n_views * n_views, n_views * n_classes, n_views * dim, n_classes * dim)
    waits = {"aten::_local_scalar_dense", "aten::item", "aten::nonzero", "aten::masked_select", "aten::is_nonzero"}
    assert not sizes.operations & waits


def test_invalid_arguments_have_clear_messages() -> None:
    z, w, prob, confident = make_batch()
    with pytest.raises(ValueError, match="did you mean 'reference'"):
        upcsc_loss(z, w, prob, confident, loss_form="refernce")
    with pytest.raises(ValueError, match="surrogate: 'top2' is not one of weighted, average, top1; did you mean"):
        upcsc_loss(z, w, prob, confident, surrogate="top2")
    for temperature in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="expected a positive temperature"):
            upcsc_loss(z, w, prob, confident, temperature=temperature)
    with pytest.raises(ValueError, match=r"expected z \(V, D\) and w \(C, D\), got z \(12, 8\), w \(5, 7\)"):
        upcsc_loss(z, w[:, :7], prob, confident)
    with pytest.raises(ValueError, match=r"expected .* prob \(V, C\)"):
        upcsc_loss(z, w, prob.T, confident)
    with pytest.raises(ValueError, match=r"confident \(V,\)"):
        upcsc_loss(z, w, prob, confident[:, None])
    with pytest.raises(ValueError, match="expected bool for confident"):
        upcsc_loss(z, w, prob, confident.float())
    with pytest.raises(ValueError, match="expected at least one view"):
        upcsc_loss(z[:0], w, prob[:0], confident[:0])


@pytest.mark.parametrize("form", FORMS)
def test_finite_at_a_low_temperature(form: str) -> None:
    z, w, prob, confident = make_batch()
    assert_all_finite((z, w, prob, confident), loss_form=form, temperature=0.01)
