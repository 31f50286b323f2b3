"""Options of plug-ins in stock USB, and errors in one line."""

from __future__ import annotations

import argparse
import re
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from semilearn import BasicDataset, get_algorithm, get_config
from semilearn.core import algorithmbase
from semilearn.core.utils import ALGORITHMS
from semilearn.imb_algorithms import get_imb_algorithm
from torch import nn
from torchvision import transforms

from semilearn_ext.errors import UserError
from semilearn_ext.registry import PLUGINS, methods, options_of, parse_method, steps_of
from semilearn_ext.settings import Settings
from tests.stock import toy

Config = Callable[..., Namespace]
STOCK = [name for name in methods() if "usb" in steps_of(parse_method(name, "").base)]


@pytest.mark.parametrize("plugin", [spec.name for spec in PLUGINS])
def test_get_config_knows_every_option_and_its_default(plugin: str) -> None:
    config = get_config({"algorithm": f"fixmatch_{plugin}"})
    options = options_of(parse_method(f"fixmatch_{plugin}", ""))
    assert {name: getattr(config, name) for name in options} == {
        name: option.default for name, option in options.items()
    }
    assert (config.plugin_weight, config.lr_plugin) == (Settings.plugin_weight, Settings.lr_plugin)
    if PLUGINS.get(plugin, "").needs.domains:
        assert config.num_domains == 0


@pytest.mark.parametrize("name", STOCK)
def test_every_method_has_valid_argparse_arguments(name: str) -> None:
    parser = usb_parser(name)
    assert "--plugin_weight" in parser.format_help() or not parse_method(name, "").plugins
    defaults = vars(parser.parse_args([]))
    assert set(options_of(parse_method(name, ""))) <= defaults.keys()


def usb_parser(name: str) -> argparse.ArgumentParser:
    """The algorithm's part of the parser in USB's ``train.py``."""
    parser = argparse.ArgumentParser()
    for argument in ALGORITHMS[name].get_argument():
        parser.add_argument(argument.name, type=argument.type, default=argument.default, help=argument.help)
    return parser


def test_options_reach_the_plugin_from_the_command_line_and_from_yaml(usb_config: Config) -> None:
    words = "--loss_form reference --unconfident_negatives false --upc_weight 0.25 --projector_dim 5 --lr_plugin 1e-2"
    typed = usb_parser("fixmatch_upcsc").parse_args(words.split())
    # YAML 1.1 reads 1e-2 as a string.
    written = "loss_form: reference\nunconfident_negatives: false\nupc_weight: 0.25\nprojector_dim: 5\nlr_plugin: 1e-2"
    for values in (vars(typed), yaml.safe_load(written)):
        algorithm = toy.build(usb_config(**values))
        options = algorithm.plugins["upcsc"].options
        assert (options["loss_form"], options["unconfident_negatives"]) == ("reference", False)
        assert (options["upc_weight"], options["sc_weight"]) == (0.25, 1.0)
        assert algorithm.plugins["upcsc"].feature_projector.weight.shape == (5, toy.FEATURES)
        assert algorithm.optimizer.param_groups[-2]["lr"] == 0.01


def assert_refused(message: str, act: Callable[[], Any]) -> None:
    with pytest.raises(UserError) as caught:
        act()
    assert "\n" not in str(caught.value)
    assert re.search(message, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("upc_weight", -1, r"upcsc: upc_weight: must be at least 0, got -1"),
        ("sc_weight", "much", r"upcsc: sc_weight: expected a number, got 'much'"),
        ("loss_form", "papers", r"upcsc: loss_form: 'papers' is not one of paper, reference; did you mean 'paper'\?"),
        ("projector_dim", 2.5, r"upcsc: projector_dim: expected an integer, got 2\.5"),
        ("unconfident_negatives", "maybe", r"upcsc: unconfident_negatives: expected true or false"),
        ("contrast_views", "both", r"upcsc: contrast_views: 'both' is not one of all, weak, strong"),
        ("lr_plugin", "fast", r"lr_plugin: expected a number, got 'fast'"),
        ("lr_plugin", -0.1, r"lr_plugin: must be at least 0"),
        ("plugin_weight", -0.1, r"plugin_weight: must be at least 0"),
    ],
)
def test_an_invalid_value_is_refused_before_training(option: str, value: Any, message: str, usb_config: Config) -> None:
    assert_refused(message, lambda: toy.build(usb_config(**{option: value})))


@pytest.mark.parametrize("name", ["fixmatch_fbcsa", "fixmatch_dgwm", "stylematch", "stylematch_upcsc"])
def test_missing_domain_labels_are_refused(name: str, usb_config: Config) -> None:
    owner = name.split("_")[-1].replace("upcsc", "stylematch")
    assert_refused(
        rf"^{owner}: needs .*domain.*num_domains", lambda: toy.build(usb_config(algorithm=name, num_domains=0))
    )
    algorithm = toy.build(usb_config(algorithm=name))
    batch = {key: value for key, value in toy.first_batch(algorithm).items() if key not in ("d_lb", "d_ulb")}
    assert_refused(
        rf"^{owner}: needs domain labels.*d_lb.*d_ulb.*get_datasets", lambda: toy.begin_step(algorithm, batch)
    )


def test_too_few_classes_or_domains_are_refused(usb_config: Config) -> None:
    message = "fbcsa: needs at least 5 classes, but the data have only 4"
    assert_refused(message, lambda: toy.build(usb_config(algorithm="fixmatch_fbcsa", num_classes=4)))
    message = "fbcsa: needs at least 2 source domains, but there is only 1"
    assert_refused(message, lambda: toy.build(usb_config(algorithm="fixmatch_fbcsa", num_domains=1)))


def test_prototypes_need_images_by_domain(usb_config: Config) -> None:
    data: dict[str, Any] = toy.datasets()
    data["train_lb"] = torch.utils.data.Subset(data["train_lb"], range(30))
    algorithm = toy.build(usb_config(algorithm="fixmatch_fbcsa"), data=data)
    assert_refused("fixmatch_fbcsa: needs un-augmented labelled images by domain.*get_datasets", algorithm.train)


@pytest.mark.parametrize("base", [base for base in toy.HOSTS if base not in ("pseudolabel", "stylematch")])
def test_use_cat_false_is_refused_with_the_reason_or_works(base: str, usb_config: Config) -> None:
    algorithm = toy.build(usb_config(algorithm=f"{base}_upcsc", use_cat=False, num_wu_iter=1))
    if base == "simmatch":  # computes every view with gradient anyway
        algorithm.train()
    else:
        assert_refused(f"{base}_upcsc: plug-ins need the gradient of every view.*set use_cat to true", algorithm.train)


def test_names_of_the_engine_are_refused_in_stock_usb(usb_config: Config) -> None:
    message = "ssdg_fixmatch_upcsc: can only be run with ssdg train; in stock USB .* is called 'fixmatch_upcsc'"
    assert_refused(message, lambda: toy.build(usb_config(algorithm="ssdg_fixmatch_upcsc")))


@pytest.mark.parametrize("name", ["abc", "saw"])
def test_algorithms_for_imbalanced_data_are_refused(name: str, usb_config: Config) -> None:
    config = usb_config(imb_algorithm=name)
    message = f"fixmatch_upcsc: plug-ins do not work with .* remove imb_algorithm: {name}"
    assert_refused(message, lambda: get_imb_algorithm(config, toy.toy_net, None, None))


def test_a_network_without_a_classifier_is_refused(usb_config: Config) -> None:
    assert_refused(
        "Linear: plug-ins need the network's classifier, a linear layer called classifier, fc or head",
        lambda: get_algorithm(usb_config(), lambda **_: nn.Linear(2, 2), None, None),
    )


def usb_dataset(name: str, labelled: bool) -> BasicDataset:
    """A dataset of USB's own class, which chooses the views by the name of the algorithm."""
    images = np.random.default_rng(0).integers(0, 255, (12, 16, 16, 3), dtype=np.uint8)
    view = transforms.ToTensor()
    return BasicDataset(name, images, [k % 6 for k in range(12)], 6, view, not labelled, view)


def test_usbs_own_datasets_are_created_for_the_base(usb_config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    def get_dataset(_: Namespace, algorithm: str, *__: Any) -> dict[str, Any]:
        labelled, unlabelled = usb_dataset(algorithm, True), usb_dataset(algorithm, False)
        return {"train_lb": labelled, "train_ulb": unlabelled, "eval": labelled, "test": None}

    monkeypatch.setattr(algorithmbase, "get_dataset", get_dataset)
    for name in ("comatch_upcsc", "defixmatch_upcsc", "pseudolabel_upc", "fixmatch_upcsc"):
        algorithm = get_algorithm(usb_config(algorithm=name), toy.toy_net, None, None)
        algorithm.train()
        assert algorithm.it == 4


def test_datasets_created_for_another_name_are_refused(usb_config: Config) -> None:
    data = {"train_lb": usb_dataset("comatch_upcsc", True), "train_ulb": usb_dataset("comatch_upcsc", False)}
    algorithm = toy.build(usb_config(algorithm="comatch_upcsc"), data=data)
    assert_refused("comatch_upcsc: batches have no x_ulb_s_0, x_ulb_s_1; .* create them for 'comatch'", algorithm.train)
