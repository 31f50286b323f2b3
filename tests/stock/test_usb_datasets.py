"""Leave-one-domain-out data in USB's form."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from semilearn import Trainer
from semilearn.core.utils import ALGORITHMS
from torch import Tensor

from semilearn_ext.data import views
from semilearn_ext.errors import UserError
from semilearn_ext.usb import DomainDatasets, get_datasets, register
from tests.stock import toy

Config = Callable[..., Namespace]


@pytest.fixture
def digits(cache_dir: Path) -> Callable[..., DomainDatasets]:
    def make(algorithm: str, target: str = "pen", **values: Any) -> DomainDatasets:
        settings = {"dataset": "digits_mini", "labels_per_class": 3, "flip": False, "cache_dir": str(cache_dir)}
        return get_datasets(algorithm, target, **{**settings, **values})

    return make


def test_parts_are_disjoint_and_no_target_image_is_for_training(digits: Callable[..., DomainDatasets]) -> None:
    data = digits("fixmatch_upcsc")
    items = data["test"].data.items
    parts = {name: {items[position] for position in part.positions.tolist()} for name, part in data.items()}
    assert {item.domain for item in parts["test"]} == {"pen"}
    assert len(parts["test"]) == sum(item.domain == "pen" for item in items)
    for name in ("train_lb", "train_ulb", "eval"):
        assert {item.domain for item in parts[name]} == set(data.sources)
        assert "pen" not in data.sources
    assert not parts["eval"] & (parts["train_lb"] | parts["train_ulb"])
    assert not parts["train_lb"] & parts["train_ulb"]
    assert len(parts["train_lb"]) == 3 * 10 * 3


def test_batches_contain_the_number_of_the_source_domain(
    digits: Callable[..., DomainDatasets], usb_config: Config
) -> None:
    data = digits("fixmatch_fbcsa")
    loaders = toy.loaders(data.configure(usb_config(algorithm="fixmatch_fbcsa", batch_size=30)), data)
    for part, name in (("lb", "train_lb"), ("ulb", "train_ulb")):
        batch = next(iter(loaders[name]))
        origin = [data[name].data.items[data[name].positions[number]] for number in batch[f"idx_{part}"]]
        assert [data.sources[number] for number in batch[f"d_{part}"]] == [item.domain for item in origin]
        assert set(batch[f"d_{part}"].tolist()) == {0, 1, 2}
        if part == "lb":
            assert batch["y_lb"].tolist() == [item.label for item in origin]
    assert set(next(iter(loaders["eval"]))) == {"x_lb", "y_lb"}


VIEWS = {
    "fixmatch": {"x_ulb_w", "x_ulb_s"},
    "pseudolabel_upcsc": {"x_ulb_w"},
    "comatch_upcsc": {"x_ulb_w", "x_ulb_s_0", "x_ulb_s_1"},
    "defixmatch_upcsc": {"x_ulb_w", "x_ulb_s"},
    "stylematch_upcsc": {"x_ulb_w", "x_ulb_s", "x_ulb_p"},
    "remixmatch": {"x_ulb_w", "x_ulb_s_0", "x_ulb_s_1", "x_ulb_s_0_rot"},
    "supervised": set(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_an_algorithm_gets_the_views_that_its_step_needs(name: str, digits: Callable[..., DomainDatasets]) -> None:
    data = digits(name)
    labelled, unlabelled = data["train_lb"][0], data["train_ulb"][5]
    assert {entry for entry in unlabelled if entry.startswith("x_")} == VIEWS[name]
    assert {entry for entry in labelled if entry.startswith("x_")} == {"x_lb"} | (
        {"x_lb_s"} if "defix" in name else set()
    )
    for value in [value for item in (labelled, unlabelled) for value in item.values() if isinstance(value, Tensor)]:
        assert value.shape == (3, 32, 32)
        assert value.dtype == torch.float32
    if name == "remixmatch":
        assert torch.equal(unlabelled["x_ulb_s_0"].rot90(unlabelled["rot_v"], (1, 2)), unlabelled["x_ulb_s_0_rot"])


def test_views_equal_those_of_this_package(digits: Callable[..., DomainDatasets]) -> None:
    data = digits("fixmatch_upcsc")
    part = data["train_ulb"]
    pixels = part.data.store[part.positions[7:8]]
    torch.manual_seed(4)
    item = part[7]
    torch.manual_seed(4)
    seeds = [int(torch.randint(2**62, ())) for _ in range(2)]
    for name, make, seed in (("x_ulb_w", views.weak, seeds[0]), ("x_ulb_s", views.strong, seeds[1])):
        assert torch.equal(item[name], make(pixels, part.view, torch.Generator().manual_seed(seed))[0])
    assert not torch.equal(part[7]["x_ulb_s"], part[7]["x_ulb_s"])
    held_out = data["eval"]
    plain = views.plain(held_out.data.store[held_out.positions[3:4]], held_out.view)[0]
    assert torch.equal(held_out[3]["x_lb"], plain)


def test_meanteacher_gets_two_weak_views(digits: Callable[..., DomainDatasets]) -> None:
    assert digits("meanteacher")["train_ulb"].kinds == {"x_ulb_w": "weak", "x_ulb_s": "weak"}


class Constant:
    """A transform with a recognisable result, which checks that its input is an image."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, image: Image.Image) -> Tensor:
        assert (image.size, image.mode) == ((32, 32), "RGB")
        return torch.full((3, 16, 16), self.value)


def test_transforms_of_the_user_are_used(digits: Callable[..., DomainDatasets], usb_config: Config) -> None:
    transforms = {"weak": Constant(1.0), "strong": Constant(2.0), "plain": Constant(3.0)}
    data = digits("comatch_upcsc", **transforms)
    assert float(data["train_lb"][0]["x_lb"].unique()) == 1
    unlabelled = data["train_ulb"][0]
    assert [float(unlabelled[name].unique()) for name in ("x_ulb_w", "x_ulb_s_0", "x_ulb_s_1")] == [1, 2, 2]
    assert [float(data[name][0]["x_lb"].unique()) for name in ("eval", "test")] == [3, 3]
    assert {float(images.unique()) for images, _ in data["train_lb"].plain_images()} == {3.0}
    assert {float(x.unique()) for x in next(iter(toy.loaders(usb_config(), data)["train_lb"]))["x_lb"]} == {1.0}
    only_strong = digits("fixmatch_upcsc", strong=Constant(2.0))["train_ulb"][0]
    assert float(only_strong["x_ulb_s"].unique()) == 2
    assert only_strong["x_ulb_w"].shape == (3, 32, 32)


def test_un_augmented_images_are_grouped_by_domain(digits: Callable[..., DomainDatasets]) -> None:
    data = digits("fixmatch_fbcsa")
    groups = data["train_lb"].plain_images()
    assert [len(labels) for _, labels in groups] == [30, 30, 30]
    assert all(torch.equal(labels.bincount(), torch.full((10,), 3)) for _, labels in groups)
    all_images = torch.cat([images for images, _ in groups])
    item = data["train_lb"].data.store[data["train_lb"].positions[:1]]
    assert any(torch.equal(image, views.plain(item, data["train_lb"].view)[0]) for image in all_images)


@pytest.mark.parametrize("name", ["fixmatch_upcsc", "softmatch_fbcsa", "stylematch_dgwm", "fixmatch_upcsc_fbcsa"])
def test_usbs_trainer_supports_these_datasets(
    name: str, digits: Callable[..., DomainDatasets], usb_config: Config
) -> None:
    data = digits(name)
    config = data.configure(usb_config(algorithm=name))
    assert (config.num_classes, config.num_domains, config.lb_dest_len) == (10, 3, 90)
    small: dict[str, Any] = dict(data)
    for part in ("eval", "test"):
        small[part] = torch.utils.data.Subset(data[part], range(12))
    algorithm = toy.build(config, data=small)
    loaders = algorithm.loader_dict
    trainer = Trainer(config, algorithm)
    trainer.fit(loaders["train_lb"], loaders["train_ulb"], loaders["eval"])
    assert algorithm.it == 4
    assert 0 <= trainer.evaluate(loaders["test"])["acc"] <= 1


def test_an_image_folder_is_a_dataset(tmp_path: Path) -> None:
    for domain in ("photo", "sketch", "paint"):
        for label in ("cat", "dog"):
            folder = tmp_path / "images" / domain / label
            folder.mkdir(parents=True)
            for number in range(20):
                Image.new("RGB", (40, 24), (number, 10 * len(domain), 100)).save(folder / f"{number}.png")
    settings: dict[str, Any] = {
        "dataset": "folder",
        "data_dir": str(tmp_path / "images"),
        "cache_dir": str(tmp_path / "cache"),
    }
    data = get_datasets("fixmatch_upcsc", "sketch", labels_per_class=2, batch_size=4, img_size=16, **settings)
    assert (data.classes, data.sources) == (("cat", "dog"), ("paint", "photo"))
    assert len(data["train_lb"]) == 8
    assert data["train_ulb"][0]["x_ulb_s"].shape == (3, 16, 16)


def test_invalid_requests_are_refused_in_one_line(digits: Callable[..., DomainDatasets]) -> None:
    with pytest.raises(UserError, match=r"'erm' is not available in stock USB; train it with ssdg train"):
        digits("erm")
    with pytest.raises(UserError, match=r"'fixmatch_upsc' is not a known algorithm; did you mean 'fixmatch_upcsc'"):
        digits("fixmatch_upsc")
    with pytest.raises(UserError, match=r"stylematch_upcsc: its style view needs this package's views"):
        digits("stylematch_upcsc", weak=Constant(1.0))
    with pytest.raises(UserError, match="street"):
        digits("fixmatch_upcsc", target="streets")


def test_registering_twice_gives_the_same_class() -> None:
    assert register("fixmatch_upcsc") is ALGORITHMS["fixmatch_upcsc"]
    assert register("fixmatch") is ALGORITHMS["fixmatch"]
    assert ALGORITHMS["fixmatch"].__module__.startswith("semilearn.")
