"""The packaged configs of the paper's rows have the released code's settings, and those in paper_form the paper's."""

from __future__ import annotations

from typing import Any

import pytest

from semilearn_ext.settings import Settings, load_settings
from semilearn_ext.settings.config_files import config_dir
from semilearn_ext.settings.scale import scale_of

BENCHMARKS = ("pacs", "office_home", "digits_dg", "mini_domainnet")
RELEASED: dict[str, Any] = {
    "step": "reference",
    "batch_size": 48,
    "uratio": 1,
    "img_size": 224,
    "flip": True,
    "cutout": 16,
    "cutout_color": "black",
    "test_view": "center",
    "net": "resnet18",
    "pretrained": True,
    "optim": "SGD",
    "momentum": 0.9,
    "nesterov": False,
    "weight_decay": 5e-4,
    "decay_norm_bias": True,
    "lr": 0.003,
    "lr_classifier": 0.01,
    "lr_plugin": 0.0005,
    "lr_schedule": "cosine",
    "lr_step": "epoch",
    "num_warmup_iter": 0,
    "clip_grad": 0.0,
    "ulb_loss_ratio": 1.0,
    "plugin_weight": 1.0,
    "eval_with_ema": False,
    "num_train_iter": 0,
}
THRESHOLD = {"p_cutoff": 0.95, "hard_label": True}
UPCSC = {
    "loss_form": "reference",
    "upc_weight": 1.0,
    "sc_weight": 1.0,
    "surrogate": "weighted",
    "unconfident_negatives": True,
    "contrast_views": "all",
    "temperature": 1.0,
    "projector_dim": 0,
}
FBCSA = {"fbc_weight": 0.1, "sa_weight": 0.5, "prototype_mode": "train"}
OF_METHOD: dict[str, dict[str, Any]] = {
    "erm": {"classifier_bias": True},
    "fixmatch": {"classifier_bias": True, **THRESHOLD},
    "fixmatch_upcsc": {"classifier_bias": False, **THRESHOLD, **UPCSC},
    "fixmatch_fbcsa": {"classifier_bias": True, **THRESHOLD, **FBCSA},
    "fixmatch_dgwm": {**THRESHOLD},
    "stylematch": {**THRESHOLD, "style_alpha": 0.5},
    "stylematch_upcsc": {**THRESHOLD, **UPCSC, "style_alpha": 0.5},
    "stylematch_fbcsa": {**THRESHOLD, **FBCSA, "style_alpha": 0.5},
    "stylematch_dgwm": {**THRESHOLD, "style_alpha": 0.5},
}


def of_config(name: str, **overrides: Any) -> Settings:
    return load_settings(config_dir() / name, overrides)


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("method", OF_METHOD)
def test_every_row_has_the_released_settings(method: str, benchmark: str) -> None:
    settings = of_config(f"{benchmark}_reference.yaml", algorithm=method)
    expected = {**RELEASED, **OF_METHOD[method], "epoch": 10 if benchmark == "mini_domainnet" else 20}
    assert {name: settings.flat()[name] for name in expected} == expected
    assert scale_of(settings) == "paper"


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("method", ["erm", "fixmatch", "fixmatch_upcsc", "stylematch", "stylematch_upcsc"])
def test_the_config_of_a_method_equals_the_shared_config(method: str, benchmark: str) -> None:
    row = of_config(f"{benchmark}_reference.yaml", algorithm=method)
    assert of_config(f"{method}_{benchmark}.yaml").flat() == row.flat()


@pytest.mark.parametrize("benchmark", BENCHMARKS)
@pytest.mark.parametrize("base", ["fixmatch", "stylematch"])
def test_the_papers_form_differs_only_in_the_loss_and_the_bias(base: str, benchmark: str) -> None:
    released = of_config(f"{base}_upcsc_{benchmark}.yaml").flat()
    paper = of_config(f"paper_form/{base}_upcsc_{benchmark}.yaml").flat()
    changed = {name: paper[name] for name in paper if paper[name] != released[name]}
    bias = {"classifier_bias": True} if base == "fixmatch" else {}
    assert changed == {"loss_form": "paper", "variant": "paper_form", **bias}
