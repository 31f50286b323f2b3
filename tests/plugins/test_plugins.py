"""The plug-in mechanism on every base that supports plug-ins, and UPCSC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from semilearn.core.utils import ALGORITHMS
from torch.nn.functional import normalize

import semilearn_ext.usb  # noqa: F401
from semilearn_ext import registry, training
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.losses import upcsc_loss
from semilearn_ext.plugins.base import StepOutput, Wants
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from

Tiny = Callable[..., Settings]
HOSTS = sorted(spec.name for spec in registry.ALGORITHMS if not spec.no_plugins and not spec.unavailable)
# Thresholds that some images pass within the few steps of a test.
BALANCED: dict[str, dict[str, Any]] = {
    "dash": {"num_wu_iter": 2},
    **{
        name: {"p_cutoff": 0.3}
        for name in ("fixmatch", "uda", "defixmatch", "pseudolabel", "comatch", "simmatch", "stylematch")
    },
    "flexmatch": {"p_cutoff": 0.3},
}


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    if hasattr(algorithm, "warmup"):
        algorithm.warmup()
    return algorithm


def half_confident(settings: Settings) -> Any:
    """FixMatch that predicts many classes, with its threshold at the median confidence of the first batch."""
    algorithm = build(settings)
    weak = algorithm.loader_dict["train_ulb"].dataset[0, 0]["x_ulb_w"]
    with torch.no_grad():
        feat = algorithm.model(weak, only_feat=True)
        algorithm.model.classifier.weight.copy_(torch.randn(10, 256) / feat.std())
        algorithm.model.classifier.bias.copy_(-algorithm.model.classifier.weight @ feat.mean(0))
        algorithm.p_cutoff = algorithm.model(weak)["logits"].softmax(1).amax(1).median().item()
    return algorithm


def first_batch(algorithm: Any, domains: bool = True) -> dict[str, torch.Tensor]:
    batch = {**algorithm.loader_dict["train_lb"].dataset[0, 0], **algorithm.loader_dict["train_ulb"].dataset[0, 0]}
    return {name: value for name, value in batch.items() if domains or not name.startswith("d_")}


def one_step(algorithm: Any, domains: bool = True) -> None:
    """A forward pass and the plug-ins, no update."""
    algorithm.it, algorithm.epoch = 0, 0
    algorithm.step(**first_batch(algorithm, domains))


def output_of_one_step(algorithm: Any, wants: Wants | None = None, domains: bool = True) -> StepOutput:
    """What a plug-in gets in the first step."""
    algorithm.it, algorithm.epoch = 0, 0
    batch = algorithm.process_batch(**first_batch(algorithm, domains))
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**batch)
    output: StepOutput = algorithm.step_output(wants or Wants())
    return output


@pytest.mark.parametrize("base", HOSTS)
def test_every_base_with_a_threshold_supports_upcsc(base: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm=f"{base}_upcsc", batch_size=12, num_train_iter=2, **BALANCED.get(base, {})))
    algorithm.train()
    record = algorithm.metrics[-1]
    for name in ("train/upc", "train/sc", "train/confident_share", "train/candidates", "train/negative_share"):
        assert record[name] == record[name], name
    output = output_of_one_step(algorithm)
    images = 12
    assert output.prob.shape == (images, 10)
    torch.testing.assert_close(output.prob.sum(1), torch.ones(images), rtol=0, atol=1e-4)
    assert not output.prob.requires_grad
    assert output.mask.shape == (images,)
    assert {view.features.shape for view in output.unlabelled} == {(images, 256)}
    assert {view.logits.shape for view in output.unlabelled} == {(images, 10)}
    assert len(output.unlabelled) == {"pseudolabel": 1, "comatch": 3, "stylematch": 3}.get(base, 2)
    assert all(view.features.requires_grad and view.logits.requires_grad for view in output.unlabelled)
    assert output.labelled.features.shape == (12, 256)
    assert output.domain is not None
    assert sorted(output.domain.tolist()) == sorted([0, 1, 2] * 4)


@pytest.mark.parametrize("base", HOSTS)
def test_views_belong_to_their_images(base: str, tiny: Tiny) -> None:
    """Row i of every view, of the confidences and of the labels is image i."""
    algorithm = build(tiny(algorithm=f"{base}_upcsc", batch_size=6, **BALANCED.get(base, {})))
    output = output_of_one_step(algorithm)
    weak = algorithm.loader_dict["train_ulb"].dataset[0, 0]["x_ulb_w"]
    labelled = algorithm.loader_dict["train_lb"].dataset[0, 0]["x_lb"]
    net = getattr(algorithm.model, "backbone", None)
    net = net if hasattr(net, "classifier") else algorithm.model
    torch.testing.assert_close(output.unlabelled[0].features, net(weak, only_feat=True), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(output.labelled.features, net(labelled, only_feat=True), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("plugin", "parts"), [("upc", ["upc"]), ("sc", ["sc"]), ("upcsc", ["upc", "sc"])])
def test_the_loss_is_the_bases_plus_the_weighted_parts(plugin: str, parts: list[str], tiny: Tiny) -> None:
    weights = {f"{part}_weight": 0.5 for part in parts}
    algorithm = half_confident(tiny(algorithm=f"fixmatch_{plugin}", batch_size=24, **weights))
    one_step(algorithm)
    logs = algorithm.log_dict
    assert 0 < float(logs["train/confident_share"]) < 1
    expected = logs["train/sup_loss"] + logs["train/unsup_loss"]
    expected += sum(0.5 * float(logs[f"train/{part}"]) for part in parts)
    assert algorithm.out_dict["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert float(logs["train/total_loss"]) == pytest.approx(expected, rel=1e-5)
    assert all(logs[f"train/{part}_weight"] == 0.5 for part in parts)
    assert {name for name in ("upc", "sc") if f"train/{name}" in logs} == set(parts)


def test_the_losses_equal_the_pure_function_of_the_views(tiny: Tiny) -> None:
    algorithm = half_confident(tiny(algorithm="fixmatch_upcsc", batch_size=24, surrogate="average"))
    output = output_of_one_step(algorithm)
    algorithm.add_plugin_losses()
    plugin = algorithm.plugins["upcsc"]
    z = normalize(plugin.feature_projector(torch.cat([view.features for view in output.unlabelled])), dim=1)
    w = normalize(plugin.proxy_projector(algorithm.model.classifier.weight), dim=1)
    out = upcsc_loss(z, w, torch.cat([output.prob] * 2), torch.cat([output.mask] * 2), surrogate="average")
    assert float(algorithm.log_dict["train/upc"]) == pytest.approx(out.upc.item(), rel=1e-5)
    assert float(algorithm.log_dict["train/sc"]) == pytest.approx(out.sc.item(), rel=1e-5)


def test_projectors_backbone_and_class_weights_get_a_gradient(tiny: Tiny) -> None:
    algorithm = half_confident(tiny(algorithm="fixmatch_upcsc", batch_size=24))
    one_step(algorithm)
    base = torch.autograd.grad(
        algorithm.out_dict["loss"], list(algorithm.model.parameters()), retain_graph=True, allow_unused=True
    )
    for (name, _), gradient in zip(algorithm.model.named_parameters(), base, strict=True):
        assert gradient is not None, name
        assert gradient.abs().max() > 0, name


def test_modules_are_part_of_the_model_and_have_their_own_rate(tiny: Tiny) -> None:
    settings = tiny(algorithm="fixmatch_upcsc", lr_plugin=0.0005, projector_dim=64)
    algorithm = build(settings)
    groups = {group["name"]: group for group in algorithm.optimizer.param_groups}
    assert groups["plugin"]["lr"] == 0.0005
    shapes = {name: tuple(p.shape) for name, p in algorithm.model.plugins.named_parameters()}
    assert shapes == {
        "upcsc.feature_projector.weight": (64, 256),
        "upcsc.feature_projector.bias": (64,),
        "upcsc.proxy_projector.weight": (64, 256),
    }
    training.run(settings)
    state = load(checkpoint_files(run_path(settings))[-1])
    assert "plugins.upcsc.proxy_projector.weight" in state["model"]


def test_inference_does_not_use_the_projectors(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc"))
    calls = []
    algorithm.plugins["upcsc"].feature_projector.register_forward_hook(lambda *_: calls.append(1))
    algorithm.evaluate()
    assert calls == []


def test_no_domain_labels_are_needed(tiny: Tiny) -> None:
    algorithm = half_confident(tiny(algorithm="fixmatch_upcsc", batch_size=24))
    one_step(algorithm)
    with_domains = algorithm.out_dict["loss"].item()
    one_step(algorithm, domains=False)
    assert algorithm.out_dict["loss"].item() == with_domains
    assert output_of_one_step(algorithm, domains=False).domain is None


def test_two_plugins_on_one_base(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="freematch_upc_sc", batch_size=12))
    algorithm.train()
    assert set(algorithm.model.plugins) == {"upc", "sc"}
    assert {"train/upc", "train/sc"} <= set(algorithm.metrics[-1])


@pytest.mark.parametrize("step", ["usb", "reference"])
@pytest.mark.parametrize(("views", "count"), [("all", 48), ("weak", 24), ("strong", 24)])
def test_which_views_are_contrasted(views: str, count: int, step: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc", batch_size=24, contrast_views=views, step=step))
    rows = []
    algorithm.plugins["upcsc"].feature_projector.register_forward_hook(lambda *call: rows.append(len(call[2])))
    one_step(algorithm)
    assert sum(rows) == count


def test_a_plugin_of_weight_zero_does_not_change_the_base(tiny: Tiny) -> None:
    """The trained network equals that of the base bit for bit."""
    plain, with_plugin = (
        build(tiny(algorithm=name, **options))
        for name, options in (("fixmatch", {}), ("fixmatch_upcsc", {"upc_weight": 0.0, "sc_weight": 0.0}))
    )
    with_plugin.model.load_state_dict({**with_plugin.model.state_dict(), **plain.model.state_dict()})
    plain.train()
    with_plugin.train()
    for name, parameter in plain.model.named_parameters():
        assert torch.equal(parameter, dict(with_plugin.model.named_parameters())[name]), name


def test_rates_of_unconfident_images_are_recorded(tiny: Tiny) -> None:
    settings = tiny(algorithm="fixmatch_upcsc")
    training.run(settings)
    record = RunFolder(run_path(settings)).read_metrics()[-1]
    assert record["unlabeled/uus_rate"] == pytest.approx(1 - record["unlabeled/keep_rate"])
    assert 0 <= record["unlabeled/inclusion_rate"] <= 1
    assert 1 <= record["unlabeled/candidates"] <= 10


def test_the_names_are_in_usbs_registry() -> None:
    for base in HOSTS:
        for plugin in ("upc", "sc", "upcsc"):
            assert f"{base}_{plugin}" in ALGORITHMS
            assert f"ssdg_{base}_{plugin}" in ALGORITHMS


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"algorithm": "supervised_upcsc"}, "supervised does not support plug-ins: it uses no unlabelled images"),
        ({"algorithm": "vat_upcsc"}, "vat does not support plug-ins"),
        ({"algorithm": "fixmatch_upcs"}, "did you mean 'fixmatch_upc"),
        ({"algorithm": "fixmatch_upc_upc"}, "contains a plug-in twice"),
        ({"algorithm": "fixmatch_upcsc", "surrogate": "best"}, "'best' is not one of weighted, average, top1"),
        ({"algorithm": "fixmatch", "surrogate": "top1"}, "not an option of fixmatch; it belongs to sc, upcsc"),
    ],
)
def test_incompatible_methods_are_refused(values: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        settings_from(**values)


@pytest.mark.parametrize("step", ["usb", "reference"])
@pytest.mark.parametrize("base", ["fixmatch", "stylematch"])
def test_three_plugins_in_mixed_precision(base: str, step: str, tinier: Tiny) -> None:
    """The network in bfloat16, the plug-ins' losses in float32, and every parameter with a gradient.

    ``tests/engine/test_mixed_precision.py`` compares every method with a single plug-in with float32.
    """
    values = {"precision": "bf16", "num_train_iter": 2, "p_cutoff": 0.25}
    algorithm = build(tinier(algorithm=f"{base}_upcsc_fbcsa_dgwm", step=step, **values))
    algorithm.train()
    assert algorithm.out_dict["loss"].dtype is torch.float32
    assert torch.isfinite(algorithm.out_dict["loss"])
    algorithm.step(**first_batch(algorithm)).total.backward()
    for name, parameter in algorithm.model.named_parameters():
        if not name.startswith("plugins."):
            assert parameter.grad is not None, name


PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


def test_the_plugin_of_the_docs_works(tiny: Tiny, tmp_path: Path) -> None:
    """It is one file of fewer than 25 lines, passed with --extend."""
    code = PAGE.read_text().split("<!-- plugin -->")[1].split("```")[1].removeprefix("python\n")
    assert len(code.splitlines()) < 25
    (tmp_path / "entropy.py").write_text(code)
    values = {"algorithm": "fixmatch_entropy", "extend": str(tmp_path / "entropy.py"), "entropy_weight": 0.3}
    algorithm = build(tiny(**values))
    one_step(algorithm)
    terms = ("train/sup_loss", "train/unsup_loss")
    total = sum(algorithm.log_dict[term] for term in terms) + 0.3 * float(algorithm.log_dict["train/entropy"])
    assert algorithm.out_dict["loss"].item() == pytest.approx(total)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "cannot be read: no such file"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_an_invalid_extension_is_a_clear_error(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "mine.py"
    if content:
        path.write_text(content)
    with pytest.raises(UserError, match=expected):
        settings_from(extend=str(path))
