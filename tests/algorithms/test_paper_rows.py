"""Every row of the paper's tables trains on digits_mini: finite losses, a gradient of every term, exact resuming."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from semilearn_ext import registry, training
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import find_classifier
from semilearn_ext.nets.modulated_classifier import ModulatedClassifier
from semilearn_ext.plugins.base import Wants
from semilearn_ext.report import paper_numbers
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from semilearn_ext.settings.load import read_yaml
from tests.conftest import FinalStates

Tiny = Callable[..., Settings]
CONFIGS = Path(__file__).parents[2] / "config" / "ssdg"
BASES = ("fixmatch", "freematch", "stylematch")
PLUGINS = ("", "_upcsc", "_fbcsa", "_dgwm")
ROWS: dict[str, dict[str, Any]] = {
    "erm": {"algorithm": "erm"},
    "meanteacher": {"algorithm": "meanteacher", "unsup_warm_up": 0.01},
    **{f"{base}{plugin}": {"algorithm": f"{base}{plugin}"} for base in BASES for plugin in PLUGINS},
    **{
        f"{base}{plugin} in the reference step": {"algorithm": f"{base}{plugin}", "step": "reference"}
        for base in ("fixmatch", "stylematch")
        for plugin in PLUGINS
    },
    "fixmatch_upc": {"algorithm": "fixmatch_upc"},
    "fixmatch_sc": {"algorithm": "fixmatch_sc"},
    "fixmatch_upc_without_uu": {"algorithm": "fixmatch_upc", "unconfident_negatives": False},
    **{
        f"{base}_upcsc_{name}_proxy": {"algorithm": f"{base}_upcsc", "surrogate": surrogate}
        for base in ("fixmatch", "stylematch")
        for name, surrogate in (("top1", "top1"), ("avg", "average"))
    },
}
TERMS = {"upcsc": ("upc", "sc"), "upc": ("upc",), "sc": ("sc",), "fbcsa": ("fbc", "sa")}


def test_no_row_of_the_paper_is_missing() -> None:
    rows = paper_numbers.method_order()
    assert {"_".join(filter(None, (row.base, *row.plugins, row.variant))) for row in rows} <= set(ROWS)


def active_loss(values: dict[str, Any]) -> dict[str, Any]:
    """Settings with which some images are confident and others are not within the few steps of a test."""
    fixed = values["algorithm"].startswith(("fixmatch", "stylematch"))
    return {"batch_size": 12, "num_train_iter": 4, "num_eval_iter": 2, **({"p_cutoff": 0.3} if fixed else {}), **values}


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    if settings.plugins:
        algorithm.call_hook("before_train_epoch", "PluginHook")
    return algorithm


def diversify_predictions(algorithm: Any) -> None:
    """Set weights with which the network predicts many classes, and the threshold to the median confidence."""
    weak = algorithm.loader_dict["train_ulb"].dataset[0, 0]["x_ulb_w"]
    classifier = find_classifier(algorithm.model)
    with torch.no_grad():
        algorithm.model.eval()
        feat = algorithm.model(weak, only_feat=True)
        direction = feat.mean(0) / feat.mean(0).norm()
        centred = feat - (feat @ direction)[:, None] * direction
        rows = torch.randperm(len(feat))[: len(classifier.weight)]
        classifier.weight.copy_(4 * centred[rows] / centred.pow(2).sum(1).mean())
        if isinstance(classifier, nn.Linear):
            classifier.bias.zero_()
        median = algorithm.model(weak)["logits"].softmax(1).amax(1).median()
        if isinstance(classifier, ModulatedClassifier):
            median = torch.zeros_like(median)  # in training, modulation changes its confidences
        algorithm.p_cutoff = median.item()
        algorithm.hooks_dict["MaskingHook"].time_p = median  # FreeMatch's threshold
        algorithm.model.train()


@pytest.mark.parametrize("name", ROWS)
def test_every_row_trains_and_resumes(name: str, tinier: Tiny, final_states: FinalStates, tmp_path: Path) -> None:
    """A run that is stopped in the middle of an epoch and resumed equals an uninterrupted one bit for bit."""
    values = active_loss(ROWS[name])
    expected, resumed = final_states(tinier, 3, **values)
    folder = RunFolder(run_path(tinier(**values, save_dir=str(tmp_path / "uninterrupted"))))
    assert all(math.isfinite(value) for value in folder.read_metrics()[-1].values() if value is not None)
    assert expected.keys() == resumed.keys()
    for key, value in expected.items():
        assert torch.equal(value, resumed[key]) if isinstance(value, torch.Tensor) else value == resumed[key], key


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("erm", "meanteacher")])
def test_every_term_has_a_gradient(name: str, tiny: Tiny) -> None:
    algorithm = build(tiny(**active_loss(ROWS[name])))
    diversify_predictions(algorithm)
    parts = [algorithm.loader_dict[stream].dataset[0, 0] for stream in ("train_lb", "train_ulb")]
    batch = algorithm.process_batch(**parts[0], **parts[1])
    images = [batch[name].requires_grad_() for name in ("x_lb", "x_ulb_s")]
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**batch)
    for gradient in torch.autograd.grad(algorithm.out_dict["loss"], images, retain_graph=True):
        assert gradient.abs().sum() > 0
    for name, plugin in (algorithm.plugins if algorithm.settings.plugins else {}).items():
        if plugin.wants is None:
            continue
        output = algorithm.step_output(plugin.wants)
        losses = plugin.losses(output)
        assert tuple(losses) == TERMS[name]
        for _, loss in losses.values():
            for view in output.unlabelled:
                (gradient,) = torch.autograd.grad(loss, view.features, retain_graph=True)
                assert gradient.abs().sum() > 0


@pytest.mark.parametrize(
    ("base", "step"), [*((base, "usb") for base in BASES), ("fixmatch", "reference"), ("stylematch", "reference")]
)
def test_dgwm_trains_its_generator_and_tests_without_it(base: str, step: str, tiny: Tiny) -> None:
    algorithm = build(tiny(**active_loss({"algorithm": f"{base}_dgwm", "step": step})))
    diversify_predictions(algorithm)
    parts = [algorithm.loader_dict[stream].dataset[0, 0] for stream in ("train_lb", "train_ulb")]
    out, _ = algorithm.train_step(**algorithm.process_batch(**parts[0], **parts[1]))
    out["loss"].backward()
    classifier = find_classifier(algorithm.model)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in classifier.parameters())
    images = parts[0]["x_lb"]
    algorithm.model.eval()
    evaluated = algorithm.model(images)
    torch.testing.assert_close(evaluated["logits"], evaluated["feat"] @ classifier.weight.T)
    roles = {group["name"]: group["params"] for group in algorithm.optimizer.param_groups}
    assert any(p is classifier.weight for p in roles["classifier"])


def test_fbcsa_refreshes_its_prototypes_every_epoch(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_fbcsa", labels_per_class=2, prototype_mode="eval"))
    first = algorithm.plugins["fbcsa"].prototypes.clone()
    data = algorithm.context.data
    algorithm.model.eval()
    with torch.no_grad():
        images = algorithm.eval_sets["labeled"]
        feat = torch.cat([algorithm.model(x, only_feat=True) for _, x in images.share(0, 1)])
    unit = feat / feat.norm(dim=1, keepdim=True)
    for d in range(3):
        for c in (0, 7):
            members = (data.domains[images.positions] == d) & (images.labels == c)
            assert int(members.sum()) == 2
            torch.testing.assert_close(first[d, c], unit[members].mean(0), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        for parameter in algorithm.model.parameters():
            parameter.mul_(1.1)
    algorithm.it = 1
    algorithm.call_hook("before_train_epoch", "PluginHook")
    assert torch.equal(algorithm.plugins["fbcsa"].prototypes, first)
    algorithm.it = algorithm.num_iter_per_epoch
    algorithm.call_hook("before_train_epoch", "PluginHook")
    assert not torch.equal(algorithm.plugins["fbcsa"].prototypes, first)


def test_fbcsa_computes_prototypes_in_training_mode_per_domain(tiny: Tiny) -> None:
    """As in the released code, batch norm uses the labelled images of one domain and updates its statistics."""
    settings = tiny(algorithm="fixmatch_fbcsa", labels_per_class=2, net="resnet18")
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    norm = algorithm.model.backbone.bn1
    before = norm.running_mean.clone()
    algorithm.call_hook("before_train_epoch", "PluginHook")
    assert int(norm.num_batches_tracked) == 3
    assert not torch.equal(norm.running_mean, before)
    images, labels = algorithm.labelled_images()[1]
    with torch.no_grad():
        feat = algorithm.model(images, only_feat=True)
    unit = feat / feat.norm(dim=1, keepdim=True)
    for c in range(10):
        torch.testing.assert_close(
            algorithm.plugins["fbcsa"].prototypes[1, c], unit[labels == c].mean(0), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"algorithm": "flexmatch_dgwm"},
            "dgwm replaces the classifier, which flexmatch does not support; use it with fixmatch, freematch, "
            "stylematch",
        ),
        ({"algorithm": "erm_upcsc"}, "erm does not support plug-ins"),
    ],
)
def test_incompatible_methods_are_refused(values: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        settings_from(**values)


def test_too_few_classes_or_domains_are_refused_before_training(tiny: Tiny, tmp_path: Path) -> None:
    from tests.image_trees import write_images

    write_images(tmp_path / "few", [f"{domain}/{label}" for domain in "abc" for label in "wxyz"], count=4, ending="png")
    few = {"dataset": "folder", "data_dir": str(tmp_path / "few"), "target_domain": "a", "labels_per_class": 1}
    settings = tiny(algorithm="fixmatch_fbcsa", img_size=16, batch_size=2, **few)
    with pytest.raises(UserError, match="fbcsa: needs at least 5 classes, but the data have only 4"):
        training.run(settings)
    assert not run_path(settings).exists()
    with pytest.raises(UserError, match="fbcsa: needs at least 2 source domains, but there is only 1"):
        training.run(tiny(algorithm="fixmatch_fbcsa", source_domains="texture"))


def test_use_cat_is_refused_or_keeps_every_gradient(tiny: Tiny) -> None:
    """Every base with every plug-in, without a joint forward pass for all views."""
    refused, kept = set(), set()
    for base in registry.ALGORITHMS:
        for plugin in registry.PLUGINS:
            if base.unavailable or registry.incompatible(base, plugin):
                continue
            values = {"algorithm": f"{base.name}_{plugin.name}", "use_cat": False, "batch_size": 6}
            if base.weak_needs_cat:
                with pytest.raises(UserError, match="without gradient, which plug-ins need"):
                    tiny(**values)
                refused.add(base.name)
                continue
            algorithm = build(tiny(**values))
            parts = [algorithm.loader_dict[stream].dataset[0, 0] for stream in ("train_lb", "train_ulb")]
            algorithm.out_dict, _ = algorithm.train_step(**algorithm.process_batch(**parts[0], **parts[1]))
            for view in algorithm.step_output(Wants()).unlabelled:
                assert view.features.requires_grad
                assert view.logits.requires_grad
            kept.add(base.name)
    assert kept == {"pseudolabel", "simmatch", "stylematch"}
    assert refused == {spec.name for spec in registry.ALGORITHMS if not spec.no_plugins and not spec.unavailable} - kept


def test_packaged_configs_scale_rates_from_sums_to_means() -> None:
    """USB's step takes the mean over three domains, and the reference step the sum."""
    usb, reference = (
        {k: v.value for k, v in read_yaml(CONFIGS / f"step_{n}.yaml").items()} for n in ("usb", "reference")
    )
    for name in ("lr", "lr_classifier", "lr_plugin"):
        assert usb[name] == pytest.approx(3 * reference[name])
    for name in ("weight_decay", "plugin_weight"):
        assert usb[name] == pytest.approx(reference[name] / 3, rel=1e-5)
