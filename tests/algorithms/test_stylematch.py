"""StyleMatch: its style view, where its classifier draws noise, and its files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.algorithms.style_view import StyleView, draw_partners
from semilearn_ext.data.views import ViewSpec
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.device import fast_precision
from semilearn_ext.errors import UserError
from semilearn_ext.nets.adain import load_style_transfer
from semilearn_ext.plugins.base import Wants
from semilearn_ext.runs.folder import run_path
from semilearn_ext.settings import Settings, config_hash
from semilearn_ext.settings.fingerprint import identity

Tiny = Callable[..., Settings]


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    return algorithm


def batch(algorithm: Any, step: int = 0) -> dict[str, torch.Tensor]:
    parts = [algorithm.loader_dict[name].dataset[0, step] for name in ("train_lb", "train_ulb")]
    return algorithm.process_batch(**parts[0], **parts[1])


SORTED = torch.arange(3).repeat_interleave(16)


@pytest.mark.parametrize("seed", range(5))
def test_image_i_takes_the_style_of_image_i_of_the_domain_drawn(seed: int) -> None:
    partners = draw_partners(SORTED, (seed, 0, 0)).view(3, 16)
    for domain, row in enumerate(partners):
        assert len(set((row // 16).tolist())) == 1
        assert int(row[0]) // 16 != domain
        assert (row % 16).tolist() == list(range(16))


def test_batches_need_not_be_sorted_by_domain() -> None:
    domain = torch.tensor([2, 0, 1, 1, 0, 2, 2])
    partners = draw_partners(domain, (3, 0, 0))
    for number in range(3):
        own = (domain == number).nonzero()[:, 0]
        others = domain[partners[own]].unique()
        assert len(others) == 1
        assert int(others) != number
        candidates = (domain == others).nonzero()[:, 0]
        assert partners[own].tolist() == [int(candidates[k % len(candidates)]) for k in range(len(own))]


def test_styles_change_with_the_step_and_not_with_the_method() -> None:
    assert torch.equal(draw_partners(SORTED, (1, 7, 0)), draw_partners(SORTED, (1, 7, 0)))
    drawn = {tuple(draw_partners(SORTED, (1, step, 0)).tolist()) for step in range(100)}
    assert len(drawn) == 8  # each of three domains has two others


class Bright(nn.Module):
    """A decoder whose images are brighter than white."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.full((len(features), 3, 32, 32), 1.5, dtype=features.dtype)


def test_the_style_view_is_not_clamped(adain_dir: Path) -> None:
    """As in the released code, the decoder's images are normalised without clamping."""
    style = StyleView(load_style_transfer(str(adain_dir)), ViewSpec(32), 0.5, fast_precision(torch.device("cpu")))
    style.transfer.decoder = Bright()  # type: ignore[assignment]
    encodings = style.encode(torch.randn(6, 3, 32, 32))
    images = style.restyle(encodings, torch.arange(6).flip(0)) * style.std + style.mean
    torch.testing.assert_close(images, torch.full_like(images, 1.5))


def test_views_in_bfloat16_are_those_in_float32(monkeypatch: pytest.MonkeyPatch, adain_dir: Path) -> None:
    transfer = load_style_transfer(str(adain_dir))
    plain, partners = torch.randn(6, 3, 32, 32), torch.arange(6).flip(0)

    def view(kind: str, precision: torch.dtype) -> torch.Tensor:
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {kind: True})
        style = StyleView(transfer, ViewSpec(32), 0.5, fast_precision(torch.device("cpu")))
        assert {weight.dtype for weight in style.transfer.parameters()} == {precision}
        return style.restyle(style.encode(plain), partners)

    exact, fast = view("avx512_f", torch.float32), view("avx512_bf16", torch.bfloat16)
    assert exact.dtype is fast.dtype is torch.float32
    assert float((fast - exact).abs().mean()) < 0.02
    assert {weight.dtype for weight in transfer.parameters()} == {torch.float32}


@pytest.mark.parametrize(("precision", "dtype"), [("auto", torch.bfloat16), ("float32", torch.float32)])
def test_float32_is_float32_for_style_views_too(
    precision: str, dtype: torch.dtype, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    algorithm = build(tiny(algorithm="stylematch", precision=precision))
    assert {parameter.dtype for parameter in algorithm.style.transfer.parameters()} == {dtype}


def test_kept_encodings_are_those_of_the_batch(tiny: Tiny) -> None:
    """Images that fit in memory and are needed again are encoded once; this does not change the style views."""
    algorithm = build(tiny(algorithm="stylematch", num_train_iter=400, step="reference", labels_per_class=1))
    assert algorithm.keeps_encodings
    assert not build(tiny(algorithm="stylematch")).keeps_encodings
    inputs = batch(algorithm)
    kept = algorithm.encodings("labeled", inputs["x_lb_p"], inputs["idx_lb"])
    algorithm.keeps_encodings = False
    encoded = algorithm.encodings("labeled", inputs["x_lb_p"], inputs["idx_lb"])
    torch.testing.assert_close(kept, encoded, rtol=1e-3, atol=1e-3)
    from_kept, from_encoded = (torch.cat(algorithm.styled(part.chunk(3))) for part in (kept, encoded))
    # In bfloat16 a rounding step of the decoder is 1/256 of its range.
    torch.testing.assert_close(from_kept, from_encoded, rtol=1e-2, atol=5e-2)
    assert not from_kept.requires_grad


def test_pseudo_labels_have_no_noise_and_losses_have(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="stylematch", p_cutoff=0.0))
    inputs = batch(algorithm)
    logits = []
    algorithm.call_hook = _recording(algorithm.call_hook, logits)
    losses = [algorithm.train_step(**inputs)[0]["loss"].item() for _ in range(2)]
    assert torch.equal(logits[0], logits[2])  # of the unlabelled images; the labelled ones follow
    assert losses[0] != losses[1]


def _recording(call_hook: Callable[..., Any], logits: list[torch.Tensor]) -> Callable[..., Any]:
    def record(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "masking":
            logits.append(kwargs["logits_x_ulb"])
        return call_hook(name, *args, **kwargs)

    return record


@pytest.mark.parametrize("step", ["usb", "reference"])
def test_every_view_has_a_gradient(step: str, tiny: Tiny) -> None:
    """The labelled, strong and style views have a gradient; the weak view only gives pseudo labels."""
    algorithm = build(tiny(algorithm="stylematch", p_cutoff=0.0, step=step))
    inputs = batch(algorithm)
    out, logs = algorithm.train_step(**inputs)
    assert float(logs["train/style_loss"]) > 0
    names = ("sup_loss", "unsup_loss", "style_loss")
    assert out["loss"].item() == pytest.approx(sum(float(logs[f"train/{name}"]) for name in names), rel=1e-5)
    assert out["step_views"].labelled.logits.requires_grad
    if step == "usb":
        weak, *others = out["step_views"].output(Wants()).unlabelled
        for gradient in torch.autograd.grad(out["loss"], [view.logits for view in others], retain_graph=True):
            assert gradient.abs().sum() > 0
        assert torch.autograd.grad(out["loss"], weak.logits, allow_unused=True)[0] is None


def test_one_source_domain_is_refused_and_nothing_is_written(tiny: Tiny) -> None:
    settings = tiny(algorithm="stylematch", source_domains="texture")
    with pytest.raises(UserError, match="needs at least two source domains, but there is only 'texture'"):
        training.run(settings)
    assert not run_path(settings).exists()


def test_missing_weights_are_refused_and_nothing_is_written(tiny: Tiny, tmp_path: Path) -> None:
    settings = tiny(algorithm="stylematch", adain_dir=str(tmp_path))
    with pytest.raises(UserError, match=r"adain_dir: no vgg_normalised\.pth in"):
        training.run(settings)
    assert not run_path(settings).exists()


def test_other_weights_are_another_experiment(tiny: Tiny, tmp_path: Path, adain_dir: Path) -> None:
    encoder = next(path for path in adain_dir.iterdir() if path.name.startswith("vgg"))
    (tmp_path / "same").mkdir()
    (tmp_path / "vgg_normalised.pth").write_bytes(encoder.read_bytes())
    (tmp_path / "decoder.pth").write_bytes((adain_dir / "decoder.pth").read_bytes())
    original, moved = (config_hash(tiny(algorithm="stylematch", adain_dir=str(d))) for d in (adain_dir, tmp_path))
    assert original == moved
    (tmp_path / "same" / "vgg_normalised.pth").write_bytes(encoder.read_bytes())
    (tmp_path / "same" / "decoder.pth").write_bytes(b"others")
    assert config_hash(tiny(algorithm="stylematch", adain_dir=str(tmp_path / "same"))) != original


def test_weights_identify_the_experiment_of_an_algorithm_that_is_derived_from_stylematch(
    tiny: Tiny, tmp_path: Path, adain_dir: Path
) -> None:
    code = (
        "from dataclasses import replace\n"
        "from semilearn_ext.algorithms.stylematch import CachingStyleMatch\n"
        "from semilearn_ext.extend import register\n"
        "from semilearn_ext.registry import ALGORITHMS\n"
        'SPEC = replace(ALGORITHMS.get("stylematch", ""), name="mystyle", title="MyStyle", engine="", reference="")\n'
        "@register(SPEC)\n"
        "class MyStyle(CachingStyleMatch): ...\n"
    )
    (tmp_path / "mystyle.py").write_text(code)
    settings = tiny(algorithm="mystyle", extend=str(tmp_path / "mystyle.py"))
    assert len(identity(settings)["style"]) == 2
    training.build(make_context(settings))
