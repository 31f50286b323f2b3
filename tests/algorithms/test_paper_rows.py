"""Every row the paper prints trains on the embedded benchmark: finite, every term with a gradient, resumable."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from semilearn_ext import training
from semilearn_ext.engine.checkpoint import checkpoint_files, load
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import find_classifier
from semilearn_ext.report import paper_numbers
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings, settings_from
from semilearn_ext.settings.load import read_yaml

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
TERMS = {"upcsc": ("upc", "sc"), "upc": ("upc",), "sc": ("sc",), "fbcsa": ("fbc", "sa"), "dgwm": ()}


def test_no_row_of_the_paper_is_missing() -> None:
    assert set(paper_numbers.accuracy()["method"]) <= set(ROWS)


def eager(values: dict[str, Any]) -> dict[str, Any]:
    """Some images are confident, others not, in the few steps of a test."""
    fixed = values["algorithm"].startswith(("fixmatch", "stylematch"))
    return {"batch_size": 12, "num_train_iter": 4, "num_eval_iter": 2, **({"p_cutoff": 0.3} if fixed else {}), **values}


def build(settings: Settings) -> Any:
    algorithm = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    for name, plugin in algorithm.plugins.items():
        algorithm.call_hook("before_train_epoch", f"plugin_{name}")
        if plugin.module is not None:
            plugin.module.train()
    return algorithm


def spread(algorithm: Any) -> None:
    """A network that predicts many classes, with the threshold at the median confidence."""
    weak = algorithm.loader_dict["train_ulb"].dataset[0, 0]["x_ulb_w"]
    classifier = find_classifier(algorithm.model)
    with torch.no_grad():
        algorithm.model.eval()
        feat = algorithm.model(weak, only_feat=True)
        middle = feat.mean(0) / feat.mean(0).norm()
        apart = feat - (feat @ middle)[:, None] * middle
        rows = torch.randperm(len(feat))[: len(classifier.weight)]
        classifier.weight.copy_(4 * apart[rows] / apart.pow(2).sum(1).mean())
        if isinstance(classifier, nn.Linear):
            classifier.bias.zero_()
        median = algorithm.model(weak)["logits"].softmax(1).amax(1).median()
        algorithm.p_cutoff = median.item()
        algorithm.hooks_dict["MaskingHook"].time_p = median  # FreeMatch's threshold
        algorithm.model.train()


@pytest.mark.parametrize("name", ROWS)
def test_it_trains_and_resumes(
    name: str, tiny: Tiny, stop_after: Callable[[Settings, int], None], tmp_path: Path
) -> None:
    """Stopped in the middle of an epoch and continued it ends bit for bit where the unbroken run does."""
    unbroken, broken = (tiny(**eager(ROWS[name]), save_dir=str(tmp_path / part)) for part in ("unbroken", "broken"))
    training.run(unbroken)
    record = RunFolder(run_path(unbroken)).read_metrics()[-1]
    assert all(math.isfinite(value) for value in record.values() if value is not None)
    stop_after(broken, 3)
    training.run(broken)
    one, other = (load(checkpoint_files(run_path(settings))[-1])["model"] for settings in (unbroken, broken))
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("erm", "meanteacher")])
def test_every_term_has_a_gradient(name: str, tiny: Tiny) -> None:
    algorithm = build(tiny(**eager(ROWS[name])))
    spread(algorithm)
    parts = [algorithm.loader_dict[stream].dataset[0, 0] for stream in ("train_lb", "train_ulb")]
    given = algorithm.process_batch(**parts[0], **parts[1])
    looked_at = [given[name].requires_grad_() for name in ("x_lb", "x_ulb_s")]
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**given)
    for gradient in torch.autograd.grad(algorithm.out_dict["loss"], looked_at, retain_graph=True):
        assert gradient.abs().sum() > 0
    seen = algorithm.observer.observation(algorithm.out_dict) if algorithm.plugins else None
    for plugin_name, plugin in algorithm.plugins.items():
        assert seen is not None
        losses = plugin.losses(seen)
        assert tuple(losses) == TERMS[plugin_name]
        for _, loss in losses.values():
            (gradient,) = torch.autograd.grad(loss, seen.views[0], retain_graph=True)
            assert gradient.abs().sum() > 0


@pytest.mark.parametrize(
    ("base", "step"), [*((base, "usb") for base in BASES), ("fixmatch", "reference"), ("stylematch", "reference")]
)
def test_dgwm_trains_its_generator_and_tests_without_it(base: str, step: str, tiny: Tiny) -> None:
    algorithm = build(tiny(**eager({"algorithm": f"{base}_dgwm", "step": step})))
    spread(algorithm)
    parts = [algorithm.loader_dict[stream].dataset[0, 0] for stream in ("train_lb", "train_ulb")]
    out, _ = algorithm.train_step(**algorithm.process_batch(**parts[0], **parts[1]))
    out["loss"].backward()
    classifier = find_classifier(algorithm.model)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in classifier.parameters())
    images = parts[0]["x_lb"]
    algorithm.model.eval()
    tested = algorithm.model(images)
    torch.testing.assert_close(tested["logits"], tested["feat"] @ classifier.weight.T)
    roles = {group["name"]: group["params"] for group in algorithm.optimizer.param_groups}
    assert any(p is classifier.weight for p in roles["classifier"])


def test_fbcsa_refreshes_its_prototypes_every_epoch(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="fixmatch_fbcsa", labels_per_class=2))
    made = algorithm.plugins["fbcsa"].module.prototypes.clone()
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
            torch.testing.assert_close(made[d, c], unit[members].mean(0), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        for parameter in algorithm.model.parameters():
            parameter.mul_(1.1)
    algorithm.it = 1
    algorithm.call_hook("before_train_epoch", "plugin_fbcsa")
    assert torch.equal(algorithm.plugins["fbcsa"].module.prototypes, made)
    algorithm.it = algorithm.num_iter_per_epoch
    algorithm.call_hook("before_train_epoch", "plugin_fbcsa")
    assert not torch.equal(algorithm.plugins["fbcsa"].module.prototypes, made)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"algorithm": "flexmatch_dgwm"}, "dgwm brings a classifier of its own, and flexmatch does not take one"),
        ({"algorithm": "erm_upcsc"}, "erm cannot take plug-ins"),
    ],
)
def test_a_wrong_combination_is_refused_at_once(values: dict[str, str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        settings_from(**values)


def test_what_the_data_do_not_allow_is_refused_at_the_start(tiny: Tiny, tmp_path: Path) -> None:
    from tests.data.test_trees import grow

    grow(tmp_path / "few", [f"{domain}/{label}" for domain in "abc" for label in "wxyz"], count=4, ending="png")
    few = {"dataset": "folder", "data_dir": str(tmp_path / "few"), "target_domain": "a", "labels_per_class": 1}
    settings = tiny(algorithm="fixmatch_fbcsa", img_size=16, batch_size=2, **few)
    with pytest.raises(UserError, match="fbcsa: needs at least 5 classes to rank the wrong ones, the data has 4"):
        training.run(settings)
    assert not run_path(settings).exists()
    with pytest.raises(UserError, match="fbcsa: compares every source domain with another, but there is only one"):
        training.run(tiny(algorithm="fixmatch_fbcsa", source_domains="texture"))
    with pytest.raises(UserError, match="use_cat: plug-ins on this algorithm need it to be true"):
        build(tiny(algorithm="fixmatch_dgwm", use_cat=False))


def test_shipped_configs_keep_the_papers_balance() -> None:
    """USB's step takes the mean over three domains, the benchmark's the sum."""
    usb, reference = (
        {k: v.value for k, v in read_yaml(CONFIGS / f"step_{n}.yaml").items()} for n in ("usb", "reference")
    )
    for name in ("lr", "lr_classifier", "lr_plugin"):
        assert usb[name] == pytest.approx(3 * reference[name])
    for name in ("weight_decay", "plugin_weight"):
        assert usb[name] == pytest.approx(reference[name] / 3, rel=1e-5)
