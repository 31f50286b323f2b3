"""Batches in USB's form: reproducible, resumable, with domains."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from semilearn_ext.data.device_batches import batch_makers
from semilearn_ext.data.experiment import load_data
from semilearn_ext.data.loaders import EpochLoader, PlainImages
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]
FIXMATCH = ["x_lb", "y_lb", "x_ulb_w", "x_ulb_s"]


def loaders(settings: Settings, names: list[str] = FIXMATCH) -> dict[str, EpochLoader]:
    data = load_data(settings)
    makers = batch_makers(data, names)
    return {
        name: EpochLoader(maker, data.total_steps, settings.num_workers, pin_memory=False)
        for name, maker in makers.items()
    }


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def test_labels_domains_and_numbers_belong_to_the_images(tiny: Tiny) -> None:
    settings = tiny(batch_size=12)
    data = load_data(settings)
    loader = loaders(settings)["train_lb"]
    batch = next(iter(loader))
    assert batch["x_lb"].shape == (12, 3, 32, 32)
    assert batch["d_lb"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    positions = [data.split.labelled[number] for number in batch["idx_lb"]]
    assert batch["y_lb"].tolist() == [data.items[p].label for p in positions]
    assert [data.sources[d] for d in batch["d_lb"]] == [data.items[p].domain for p in positions]


@pytest.mark.parametrize("stream", ["train_lb", "train_ulb"])
def test_batches_do_not_depend_on_the_number_of_workers(tiny: Tiny, stream: str) -> None:
    alone, helped = (list(loaders(tiny(num_workers=workers))[stream]) for workers in (0, 2))
    assert len(alone) == len(helped) == 4
    assert all(same(batch, other) for batch, other in zip(alone, helped, strict=True))


def test_a_loader_goes_on_from_any_position(tiny: Tiny) -> None:
    settings = tiny(num_train_iter=0, epoch=2, batch_size=48)
    whole = loaders(settings)["train_ulb"]
    first = list(whole)
    whole.seek(len(first))
    second = list(whole)
    resumed = loaders(settings)["train_ulb"]
    resumed.seek(len(first) - 2)
    assert all(same(batch, other) for batch, other in zip(resumed, first[-2:], strict=True))
    resumed.seek(len(first))
    assert same(next(iter(resumed)), second[0])
    assert not same(first[0], second[0])


def test_seeds_see_other_orders_and_views(tiny: Tiny) -> None:
    first, second = (next(iter(loaders(tiny(seed=seed))["train_ulb"])) for seed in (1, 2))
    assert not torch.equal(first["idx_ulb"], second["idx_ulb"])


def test_labelled_and_unlabelled_images_are_distinct(tiny: Tiny) -> None:
    data = load_data(tiny())
    assert not set(data.split.labelled) & set(data.split.unlabelled)
    assert "y_ulb" not in next(iter(loaders(tiny())["train_ulb"]))


def test_rotations_turn_the_strong_view(tiny: Tiny) -> None:
    remixmatch = ["x_lb", "y_lb", "x_ulb_w", "x_ulb_s_0", "x_ulb_s_1", "x_ulb_s_0_rot", "rot_v"]
    batch = next(iter(loaders(tiny(batch_size=24), remixmatch)["train_ulb"]))
    for image, turned, quarters in zip(batch["x_ulb_s_0"], batch["x_ulb_s_0_rot"], batch["rot_v"], strict=True):
        assert torch.equal(torch.rot90(image, int(quarters), (1, 2)), turned)
    assert len(set(batch["rot_v"].tolist())) > 1


def test_plain_images_are_shared_between_processes(tiny: Tiny) -> None:
    data = load_data(tiny())
    images = PlainImages(data, data.split.target, 100, view="test")
    seen = torch.zeros(len(images))
    for rank in range(2):
        for part, x in images.share(rank, 2):
            seen[part] += 1
            assert len(x) == len(seen[part])
    assert (seen == 1).all()
