"""Images in training and test, learning rates and batches equal those of the released code.

The numbers in ``fixtures/pipeline`` were recorded by running the released code.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from semilearn_ext import training
from semilearn_ext.data.device_batches import batch_makers
from semilearn_ext.data.experiment import SSDGData, load_data
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.data.samplers import DomainBatches, iterations_per_epoch
from semilearn_ext.engine.context import make_context
from semilearn_ext.settings import Settings, config_hash, settings_from

FIXTURES = Path(__file__).parent / "fixtures" / "pipeline"
VIEWS = dict(np.load(FIXTURES / "views.npz"))
COUNT = sum(name.startswith("image") for name in VIEWS)
SCHEDULE = json.loads((FIXTURES / "schedule.json").read_text())
IMAGENET_STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)


def expected(view: str) -> Tensor:
    """(N, 3, 32, 32): the released code's view of every image."""
    return torch.from_numpy(np.stack([VIEWS[f"{view}{k}"] for k in range(COUNT)]))


def grey_level_difference(first: Tensor, second: Tensor) -> float:
    return float(((first - second) * IMAGENET_STD * 255).abs().max())


def load(folder: Path, **values: Any) -> tuple[SSDGData, list[int]]:
    """The images of the fixture in three domains and two classes, and the positions of the target's cats."""
    for domain, name in itertools.product(("day", "dusk", "night"), ("cat", "dog")):
        (folder / domain / name).mkdir(parents=True, exist_ok=True)
        for k in range(COUNT):
            Image.fromarray(VIEWS[f"image{k}"]).save(folder / domain / name / f"{k}.png")
    defaults = {"dataset": "folder", "data_dir": folder, "cache_dir": folder.parent / "cache", "device": "cpu"}
    sizes = {"img_size": 32, "labels_per_class": 2, "batch_size": 4, "target_domain": "night", "progress": False}
    data = load_data(settings_from(**{**defaults, **sizes, **values}))
    order = {item.name: position for position, item in enumerate(data.items)}
    return data, [order[f"night/cat/{k}.png"] for k in range(COUNT)]


def all_images(data: SSDGData, positions: list[int], view: Any) -> Tensor:
    return torch.cat([x for _, x in PlainImages(data, positions, 4, view=view).share(0, 1)])


@pytest.mark.parametrize("cache", ["memmap", "none"])
@pytest.mark.parametrize("view", ["test", "plain"])
def test_views_of_images_that_are_not_square_equal_the_released_code(tmp_path: Path, cache: str, view: str) -> None:
    """The test view crops the centre; the un-augmented view squashes the whole image."""
    data, positions = load(tmp_path / "images", cache=cache)
    assert grey_level_difference(all_images(data, positions, view), expected(view)) < 0.01
    assert grey_level_difference(expected("test"), expected("plain")) > 100


@pytest.mark.parametrize("cache", ["memmap", "none"])
def test_test_images_can_be_squashed(tmp_path: Path, cache: str) -> None:
    data, positions = load(tmp_path / "images", cache=cache, test_view="squash")
    assert grey_level_difference(all_images(data, positions, "test"), expected("plain")) < 0.01
    assert config_hash(data.settings) != config_hash(load(tmp_path / "images")[0].settings)


@pytest.mark.parametrize("name", ["x_lb_p", "x_ulb_p"])
def test_the_images_that_style_views_start_from_are_squashed(tmp_path: Path, name: str) -> None:
    data, _ = load(tmp_path / "images")
    stream = "train_lb" if name == "x_lb_p" else "train_ulb"
    split = data.split.labelled if stream == "train_lb" else data.split.unlabelled
    batch = batch_makers(data, [name])[stream][0, 0]
    numbers = [int(Path(data.items[split[k]].name).stem) for k in batch[f"idx_{name.split('_')[1]}"]]
    assert grey_level_difference(batch[name], expected("plain")[numbers]) < 0.01


@pytest.mark.parametrize("epochs", [20, 10, 3])
def test_optimizer_and_learning_rates_equal_the_released_code(tiny: Callable[..., Settings], epochs: int) -> None:
    rates = {"lr": 0.003, "lr_classifier": 0.01, "lr_plugin": 0.0005}
    settings = tiny(algorithm="fixmatch_upcsc", num_train_iter=0, num_eval_iter=0, batch_size=48, epoch=epochs, **rates)
    algorithm = training.build(make_context(settings), logger=training.silent_logger())
    assert algorithm.scheduler is not None
    groups = {group["name"]: group for group in algorithm.optimizer.param_groups}
    for name, value in SCHEDULE["learning_rates"]["optimizer"].items():
        assert {group[name] for group in groups.values()} == {value}
    steps = algorithm.num_iter_per_epoch
    assert steps > 1
    for epoch in range(epochs):
        for _ in range(steps):
            for name, released in (("backbone", "backbone"), ("classifier", "classifier"), ("plugin", "projector")):
                expected_rate = SCHEDULE["learning_rates"][f"{epochs}/{released}"][epoch]
                assert groups[name]["lr"] == pytest.approx(expected_rate, rel=1e-12)
            algorithm.optimizer.step()
            algorithm.scheduler.step()


@pytest.mark.parametrize("case", SCHEDULE["sampler"], ids=lambda case: "-".join(map(str, case["images_per_domain"])))
def test_the_number_of_batches_per_epoch_equals_the_released_code(case: dict[str, Any]) -> None:
    counts = case["images_per_domain"]
    per_domain = case["batch_size"] // len(counts)
    steps = iterations_per_epoch(counts, per_domain)
    assert steps == case["batches"]
    ends = np.cumsum(counts)
    domains = [np.arange(end - count, end) for count, end in zip(counts, ends, strict=True)]
    sampler = DomainBatches(domains, per_domain, steps, seed=1, stream=0)
    epoch = np.concatenate([sampler.batch(0, step) for step in range(steps)])
    assert len(epoch) - len(set(epoch)) == case["repeats_within_an_epoch"]
