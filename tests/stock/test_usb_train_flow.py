"""What USB's own ``train.py`` does, with a config file in USB's form and USB's own dataset, networks and loop.

The script is not in USB's package, so its main flow is repeated here. A few random images replace CIFAR-10, which
would have to be downloaded, and PyYAML replaces USB's reader of config files, which needs an old ``ruamel.yaml``.
"""

from __future__ import annotations

import argparse
import math
import os
import random
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
import yaml
from semilearn import get_algorithm, get_config, get_net_builder
from semilearn.algorithms import name2alg
from semilearn.core.utils import TBLog, count_parameters, get_logger, over_write_args_from_dict, send_model_cuda

from semilearn_ext.errors import UserError
from semilearn_ext.nets.classifier_net import class_weights, find_classifier
from tests.stock import toy

# USB's config/classic_cv/fixmatch/fixmatch_cifar10_40_0.yaml, with one name changed and small numbers.
CONFIG = """
algorithm: fixmatch_upcsc
save_dir: ./saved_models/classic_cv
save_name: fixmatch_cifar10_40_0
resume: False
load_path: None
overwrite: True
use_tensorboard: False
use_wandb: False
use_aim: False
epoch: 2
num_train_iter: 2
num_eval_iter: 1
num_log_iter: 1
num_labels: 40
batch_size: 4
eval_batch_size: 32
hard_label: True
T: 0.5
p_cutoff: 0.95
ulb_loss_ratio: 1.0
uratio: 2
ema_m: 0.999
img_size: 32
crop_ratio: 0.875
optim: SGD
lr: 0.03
layer_decay: 1.0
momentum: 0.9
weight_decay: 0.0005
amp: False
clip: 0.0
use_cat: True
seed: 0
world_size: 1
rank: 0
multiprocessing_distributed: False
dist_url: tcp://127.0.0.1:10001
dist_backend: nccl
gpu: 0
dataset: cifar10
data_dir: ./data
train_sampler: RandomSampler
num_classes: 10
num_workers: 0
net: wrn_28_2
net_from_name: False
use_pretrain: False
"""


class FewImages:
    """Replaces ``torchvision.datasets.CIFAR10``."""

    def __init__(self, root: str, train: bool, download: bool, **_: Any) -> None:
        rng = np.random.default_rng(int(train))
        count = 60 if train else 20
        self.data = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        self.targets = np.arange(count) % 10


@pytest.fixture(autouse=True)
def few_images(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torchvision.datasets, "CIFAR10", FewImages)
    monkeypatch.chdir(tmp_path)


def arguments(config: str, *flags: str) -> Namespace:
    """USB's ``get_config`` in train.py: general options, then those of the algorithm, overridden by the file."""
    values = yaml.safe_load(config)
    general = vars(get_config({"algorithm": "fixmatch"}))
    parser = argparse.ArgumentParser()
    algorithm_arguments = name2alg[values["algorithm"]].get_argument()
    for argument in algorithm_arguments:
        parser.add_argument(argument.name, type=argument.type, default=argument.default, help=argument.help)
    args = Namespace(**{**general, **vars(parser.parse_args(flags))})
    over_write_args_from_dict(args, values)
    return args


def main(args: Namespace) -> Any:
    """``main`` and ``main_worker`` of USB's train.py, for one process."""
    assert args.num_train_iter % args.epoch == 0
    args.distributed = args.world_size > 1 or args.multiprocessing_distributed
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    save_path = os.path.join(args.save_dir, args.save_name)
    tb_log = TBLog(save_path, "tensorboard", use_tensorboard=args.use_tensorboard)
    logger = get_logger(args.save_name, save_path, "WARNING")
    model = get_algorithm(args, get_net_builder(args.net, args.net_from_name), tb_log, logger)
    logger.info(f"Number of Trainable Params: {count_parameters(model.model)}")
    with pytest.MonkeyPatch.context() as patch:  # only here, because torch's optimizers also check it
        patch.setattr(torch.cuda, "is_available", lambda: True)
        model.model = send_model_cuda(args, model.model)
        model.ema_model = send_model_cuda(args, model.ema_model, clip_batch=False)
    if args.resume and os.path.exists(args.load_path):
        model.load_model(args.load_path)
    if hasattr(model, "warmup"):
        model.warmup()
    model.train()
    return model


def check(model: Any, args: Namespace) -> None:
    assert all(math.isfinite(float(model.log_dict[f"train/{name}"])) for name in ("total_loss", "upc", "sc"))
    assert 0 <= model.results_dict["eval/best_acc"] <= 1
    saved = torch.load(Path(args.save_dir, args.save_name, "latest_model.pth"))
    assert saved["it"] == args.num_train_iter + 1  # as USB counts after the last iteration
    assert "plugins.upcsc.feature_projector.weight" in saved["model"]


@pytest.mark.parametrize("base", [base for base in toy.HOSTS if base != "stylematch"])
def test_every_base_trains_on_usbs_own_data(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaders, views by the name of the base, warm-up, loop, evaluation, checkpoints."""
    from semilearn import nets

    monkeypatch.setattr(nets, "wrn_28_2", toy.noisy_net)
    brief = ("--num_wu_iter", "1") if base == "dash" else ()
    args = arguments(CONFIG.replace("fixmatch_upcsc", f"{base}_upcsc"), "--upc_weight", "0.5", *brief)
    assert args.upc_weight == 0.5
    model = main(args)
    assert float(model.log_dict["train/upc_weight"]) == 0.5
    check(model, args)


@pytest.mark.parametrize("net", ["wrn_28_2", "resnet50", "vit_tiny_patch2_32"])
def test_plugins_train_on_usbs_own_networks(net: str) -> None:
    config = yaml.safe_load(CONFIG) | {"net": net, "batch_size": 2, "uratio": 1, "epoch": 1, "num_train_iter": 1}
    if net.startswith("vit"):
        config |= {"optim": "AdamW", "layer_decay": 0.5}
    args = arguments(yaml.safe_dump(config))
    model = main(args)
    check(model, args)
    features = class_weights(find_classifier(model.model)).shape[1]
    assert model.plugins["upcsc"].feature_projector.in_features == features


def test_a_run_is_resumed_with_usbs_options() -> None:
    config = yaml.safe_load(CONFIG) | {"net": "wrn_28_2", "batch_size": 2, "uratio": 1}
    first = main(arguments(yaml.safe_dump(config)))
    latest = Path(config["save_dir"], config["save_name"], "latest_model.pth")
    more = {"epoch": 4, "num_train_iter": 4, "resume": True, "overwrite": False, "load_path": str(latest)}
    resumed = main(arguments(yaml.safe_dump(config | more)))
    assert (first.it, resumed.it) == (2, 4)


@pytest.mark.parametrize("name", ["fixmatch_fbcsa", "fixmatch_dgwm", "stylematch_upcsc"])
def test_methods_that_need_domains_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="needs") as error:
        main(arguments(CONFIG.replace("fixmatch_upcsc", name)))
    assert "domain" in str(error.value)
    assert "\n" not in str(error.value)
