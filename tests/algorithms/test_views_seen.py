"""The number of views and images that every plug-in gets, for every base and step, and the gradients of the views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from semilearn_ext import registry, training
from semilearn_ext.engine.context import make_context
from semilearn_ext.nets.classifier_net import find_classifier
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]
LABELLED, UNLABELLED = 6, 12
VIEWS = {"pseudolabel": 1, "comatch": 3, "stylematch": 3}
PAIRS = [
    (base.name, plugin.name, step)
    for base in registry.ALGORITHMS
    for plugin in registry.PLUGINS
    if not base.unavailable and not registry.incompatible(base, plugin)
    for step in registry.steps_of(base.name)
]


@pytest.mark.parametrize(("base", "plugin", "step"), PAIRS)
def test_views_that_a_plugin_gets(base: str, plugin: str, step: str, tiny: Tiny) -> None:
    settings = tiny(algorithm=f"{base}_{plugin}", step=step, batch_size=LABELLED, uratio=UNLABELLED // LABELLED)
    algorithm: Any = training.build(make_context(settings))
    algorithm.it = algorithm.epoch = 0
    if hasattr(algorithm, "warmup"):
        algorithm.rho_init = algorithm.rho = 10.0  # Dash's threshold, without its warm-up
    parts = [algorithm.loader_dict[name].dataset[0, 0] for name in ("train_lb", "train_ulb")]
    algorithm.out_dict, algorithm.log_dict = algorithm.train_step(**algorithm.process_batch(**parts[0], **parts[1]))
    wants = algorithm.plugins[plugin].wants
    if wants is None:
        assert plugin == "dgwm"
        return
    output = algorithm.step_output(wants)
    rows = LABELLED + UNLABELLED if plugin == "fbcsa" else UNLABELLED
    views = 1 if plugin == "fbcsa" else VIEWS.get(base, 2)
    assert [len(view.features) for view in output.unlabelled] == [rows] * views
    assert len(output.mask) == len(output.prob) == len(output.domain) == rows
    assert len(output.labelled.features) == len(output.labels) == LABELLED
    assert output.losses["total_loss"] is algorithm.out_dict["loss"]
    backbone = next(iter(algorithm.model.parameters()))
    classifier = next(iter(find_classifier(algorithm.model).parameters()))
    for view in (output.labelled, *output.unlabelled):
        (of_features,) = torch.autograd.grad(view.features.pow(2).sum(), backbone, retain_graph=True)
        of_logits = torch.autograd.grad(view.logits.pow(2).sum(), (backbone, classifier), retain_graph=True)
        assert all(gradient.abs().sum() > 0 for gradient in (of_features, *of_logits))
