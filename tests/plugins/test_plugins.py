"""The plug-in mechanism on every base that can take one, and UPCSC on top of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from semilearn.core.utils import ALGORITHMS

from semilearn_ext import training
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.losses import upcsc_loss
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from semilearn_ext.settings.methods import BASES, NO_PLUGINS

Tiny = Callable[..., Settings]
HOSTS = sorted(set(BASES) - set(NO_PLUGINS))
# Some images are confident in the few steps of a test.
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


def one_step(algorithm: Any, domains: bool = True) -> None:
    """A forward pass and the plug-ins, no update."""
    algorithm.it, algorithm.epoch = 0, 0
    batch = {**algorithm.loader_dict["train_lb"].dataset[0, 0], **algorithm.loader_dict["train_ulb"].dataset[0, 0]}
    if not domains:
        batch = {name: value for name, value in batch.items() if not name.startswith("d_")}
    algorithm.observer.forget()
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**algorithm.process_batch(**batch))
    for name in algorithm.plugins:
        algorithm.call_hook("after_train_step", f"plugin_{name}")


@pytest.mark.parametrize("base", HOSTS)
def test_every_base_with_a_threshold_takes_it(base: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm=f"{base}_upcsc", batch_size=12, num_train_iter=2, **BALANCED.get(base, {})))
    algorithm.train()
    record = algorithm.metrics[-1]
    for name in ("train/upc", "train/sc", "train/confident_share", "train/candidates", "train/negative_share"):
        assert record[name] == record[name], name
    one_step(algorithm)
    seen = algorithm.observer.observation(algorithm.out_dict)
    images = 12
    assert seen.prob.shape == (images, 10)
    torch.testing.assert_close(seen.prob.sum(1), torch.ones(images), rtol=0, atol=1e-4)
    assert not seen.prob.requires_grad
    assert seen.confident.shape == (images,)
    assert {view.shape for view in seen.views} == {(images, 256)}
    assert len(seen.views) == {"pseudolabel": 1, "comatch": 3, "stylematch": 3}.get(base, 2)
    assert all(view.requires_grad for view in seen.views)
    assert seen.labelled.features.shape == (12, 256)
    assert seen.domain is not None
    assert sorted(seen.domain.tolist()) == sorted([0, 1, 2] * 4)


@pytest.mark.parametrize("base", HOSTS)
def test_views_belong_to_their_images(base: str, tiny: Tiny) -> None:
    """Row i of every view, of the confidences and of the labels is image i."""
    algorithm = build(tiny(algorithm=f"{base}_upcsc", batch_size=6, **BALANCED.get(base, {})))
    one_step(algorithm)
    seen = algorithm.observer.observation(algorithm.out_dict)
    weak = algorithm.loader_dict["train_ulb"].dataset[0, 0]["x_ulb_w"]
    labelled = algorithm.loader_dict["train_lb"].dataset[0, 0]["x_lb"]
    net = getattr(algorithm.model, "backbone", None)
    net = net if hasattr(net, "classifier") else algorithm.model
    torch.testing.assert_close(seen.views[0], net(weak, only_feat=True), rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(seen.labelled.features, net(labelled, only_feat=True), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("plugin", "parts"), [("upc", ["upc"]), ("sc", ["sc"]), ("upcsc", ["upc", "sc"])])
def test_the_loss_is_the_bases_plus_the_weighted_parts(plugin: str, parts: list[str], tiny: Tiny) -> None:
    weights = {f"{part}_weight": 0.5 for part in parts}
    algorithm = half_confident(tiny(algorithm=f"fixmatch_{plugin}", batch_size=24, **weights))
    one_step(algorithm)
    logs = algorithm.log_dict
    assert 0 < float(logs["train/confident_share"]) < 1
    expected = logs["train/total_loss"] + sum(0.5 * float(logs[f"train/{part}"]) for part in parts)
    assert algorithm.out_dict["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert {name for name in ("upc", "sc") if f"train/{name}" in logs} == set(parts)


def test_it_is_the_pure_function_on_what_was_seen(tiny: Tiny) -> None:
    algorithm = half_confident(tiny(algorithm="fixmatch_upcsc", batch_size=24, surrogate="average"))
    one_step(algorithm)
    seen = algorithm.observer.observation(algorithm.out_dict)
    module = algorithm.model.plugins["upcsc"]
    z = torch.nn.functional.normalize(module["feature"](torch.cat(seen.views)), dim=1)
    w = torch.nn.functional.normalize(module["proxy"](algorithm.model.classifier.weight), dim=1)
    out = upcsc_loss(z, w, torch.cat([seen.prob] * 2), torch.cat([seen.confident] * 2), surrogate="average")
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


def test_modules_live_in_the_model_with_a_rate_of_their_own(tiny: Tiny) -> None:
    settings = tiny(algorithm="fixmatch_upcsc", lr_plugin=0.0005, projector_dim=64)
    algorithm = build(settings)
    groups = {group["name"]: group for group in algorithm.optimizer.param_groups}
    assert groups["plugin"]["lr"] == 0.0005
    shapes = {name: tuple(p.shape) for name, p in algorithm.model.plugins.named_parameters()}
    assert shapes == {
        "upcsc.feature.weight": (64, 256),
        "upcsc.feature.bias": (64,),
        "upcsc.proxy.weight": (64, 256),
    }
    training.run(settings)
    state = load(checkpoint_files(run_path(settings))[-1])
    assert "plugins.upcsc.proxy.weight" in state["model"]


def test_inference_does_without_them(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc"))
    calls = []
    algorithm.model.plugins["upcsc"]["feature"].register_forward_hook(lambda *_: calls.append(1))
    algorithm.evaluate()
    assert calls == []


def test_no_domain_labels_are_needed(tiny: Tiny) -> None:
    algorithm = half_confident(tiny(algorithm="fixmatch_upcsc", batch_size=24))
    one_step(algorithm)
    with_domains = algorithm.out_dict["loss"].item()
    one_step(algorithm, domains=False)
    assert algorithm.observer.observation(algorithm.out_dict).domain is None
    assert algorithm.out_dict["loss"].item() == with_domains


def test_two_plugins_on_one_base(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="freematch_upc_sc", batch_size=12))
    algorithm.train()
    assert set(algorithm.model.plugins) == {"upc", "sc"}
    assert {"train/upc", "train/sc"} <= set(algorithm.metrics[-1])


@pytest.mark.parametrize(("views", "count"), [("all", 48), ("weak", 24), ("strong", 24)])
def test_which_views_are_contrasted(views: str, count: int, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc", batch_size=24, views=views))
    rows = []
    algorithm.model.plugins["upcsc"]["feature"].register_forward_hook(lambda *call: rows.append(len(call[2])))
    one_step(algorithm)
    assert rows == [count]


def test_the_base_alone_is_not_changed(tiny: Tiny) -> None:
    """With weight 0 the trained network is bit for bit that of the base."""
    plain, silent = (
        build(tiny(algorithm=name, **options))
        for name, options in (("fixmatch", {}), ("fixmatch_upcsc", {"upc_weight": 0.0, "sc_weight": 0.0}))
    )
    silent.model.load_state_dict({**silent.model.state_dict(), **plain.model.state_dict()})
    plain.train()
    silent.train()
    for name, parameter in plain.model.named_parameters():
        assert torch.equal(parameter, dict(silent.model.named_parameters())[name]), name


def test_a_stopped_run_goes_on_as_if_nothing_had_happened(
    tiny: Tiny, stop_after: Callable[[Settings, int], None], tmp_path: Path
) -> None:
    unbroken, broken = (
        tiny(algorithm="freematch_upcsc", num_train_iter=6, num_eval_iter=6, save_dir=str(tmp_path / folder))
        for folder in ("unbroken", "broken")
    )
    training.run(unbroken)
    stop_after(broken, 3)
    training.run(broken)
    one, other = (load(checkpoint_files(run_path(settings))[-1])["model"] for settings in (unbroken, broken))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_the_observation_is_recorded(tiny: Tiny) -> None:
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


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"algorithm": "supervised_upcsc"}, "supervised cannot take plug-ins: it uses no unlabelled images"),
        ({"algorithm": "vat_upcsc"}, "vat cannot take plug-ins"),
        ({"algorithm": "fixmatch_upcs"}, "did you mean 'fixmatch_upc"),
        ({"algorithm": "fixmatch_upc_upc"}, "names a plug-in twice"),
        ({"algorithm": "fixmatch_upcsc", "surrogate": "best"}, "'best' is not one of weighted, average, top1"),
        ({"algorithm": "fixmatch", "surrogate": "top1"}, "not an option of fixmatch; it belongs to sc, upcsc"),
    ],
)
def test_a_wrong_combination_is_refused_at_once(values: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        settings_from(**values)


def test_mixed_precision(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_upcsc", amp=True, num_train_iter=2))
    algorithm.train()
    assert algorithm.out_dict["loss"].dtype is torch.float32
    assert torch.isfinite(algorithm.out_dict["loss"])


README_PLUGIN = (Path(__file__).parents[2] / "README.md").read_text().split("<!-- plugin -->")[1].split("```")[1]


def test_the_readmes_own_plugin_works(tiny: Tiny, tmp_path: Path) -> None:
    """One file, under 25 lines, named with --extend."""
    code = README_PLUGIN.removeprefix("python\n")
    assert len(code.splitlines()) < 25
    (tmp_path / "entropy.py").write_text(code)
    values = {"algorithm": "fixmatch_entropy", "extend": str(tmp_path / "entropy.py"), "entropy_weight": 0.3}
    algorithm = build(tiny(**values))
    one_step(algorithm)
    total = algorithm.log_dict["train/total_loss"] + 0.3 * float(algorithm.log_dict["train/entropy"])
    assert algorithm.out_dict["loss"].item() == pytest.approx(total)


@pytest.mark.parametrize(("content", "expected"), [(None, "no such Python file"), ("1 / 0", "ZeroDivisionError")])
def test_a_wrong_file_of_ones_own_is_a_clear_error(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "mine.py"
    if content:
        path.write_text(content)
    with pytest.raises(UserError, match=expected):
        settings_from(extend=str(path))
