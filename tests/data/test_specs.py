"""Every dataset declares itself once, without torch, and users can add their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from semilearn_ext import registry
from semilearn_ext.data.experiment import load_data
from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.errors import UserError
from semilearn_ext.listing import render
from semilearn_ext.registry import DATASETS
from semilearn_ext.settings import settings_from
from semilearn_ext.settings.domains import domains_of
from tests.forked import Forked
from tests.image_trees import write_images

PAPER = ("pacs", "office_home", "digits_dg", "mini_domainnet")


def test_the_list_is_read_without_torch() -> None:
    code = "import sys, semilearn_ext.data; print({'torch', 'numpy', 'PIL'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


@pytest.mark.parametrize("name", [spec.name for spec in DATASETS])
def test_every_dataset_is_described_completely(name: str) -> None:
    spec = DATASETS.get(name, "test")
    assert f"{name} " in render()
    assert spec.about in render()
    assert callable(spec.load())
    assert (name in PAPER) == spec.in_paper == spec.paper.startswith("https://arxiv.org/")
    assert (name in PAPER) == bool(spec.splits_folder)


EXTENSION = """
import numpy as np
import torch

from semilearn_ext.extend import DatasetSpec, ImageTreeSpec, Item, Loaded, declare, register

declare(
    ImageTreeSpec(
        name="pets",
        title="Pets",
        about="cats and dogs",
        domains=("day", "dusk", "night"),
        num_classes=2,
        folders=("pets_v2",),
    ),
    __file__,
)

@register(DatasetSpec(name="stripes", title="Stripes", about="stripes", domains=("a", "b", "c"), mean=(0.0, 0.0, 0.0)))
def load(spec, settings):
    items = [
        Item(f"{domain}/{label}/{k}", label, domain, str(k))
        for domain in spec.domains for label in range(2) for k in range(6)
    ]
    images = torch.zeros(len(items), 3, 8, 8, dtype=torch.uint8)
    images[[item.label == 1 for item in items], :, ::2] = 255
    return Loaded(images, items, ("plain", "striped"))
"""


@pytest.fixture
def extension(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "my_datasets.py"
    path.write_text(EXTENSION)
    yield path
    registry.remove(str(path.resolve()))


def test_a_users_own_image_tree_needs_no_code(extension: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "pets_v2", [f"{d}/{c}" for d in ("Day", "Dusk", "Night") for c in ("cat", "dog")], 5, "png")
    values = {"dataset": "pets", "data_dir": tmp_path, "cache_dir": tmp_path / "cache", "labels_per_class": 1}
    settings = settings_from(extend=str(extension), target_domain="night", batch_size=2, img_size=16, **values)
    assert domains_of(settings) == ["day", "dusk", "night"]
    data = load_data(settings)
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in data.split] == [4, 12, 4, 10]
    with pytest.raises(UserError, match=r"no pets in .*expected <domain>/<class>/"):
        load_data(settings_from(**{**settings.flat(), "data_dir": tmp_path / "nowhere"}))


def test_data_commands_support_a_users_dataset(extension: Path, tmp_path: Path) -> None:
    write_images(tmp_path / "pets_v2", [f"{d}/{c}" for d in ("day", "dusk", "night") for c in ("cat", "dog")], 3, "png")
    command = ("data", "check", "pets", "--data_dir", str(tmp_path))
    process = Forked(*command, "--extend", str(extension), cwd=tmp_path)
    output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert output.startswith(f"pets: 18 images in {tmp_path / 'pets_v2'}\n")
    unknown = Forked(*command, cwd=tmp_path)
    assert "'pets' is not a known dataset" in unknown.communicate()[1]
    assert unknown.returncode == 2


def test_a_users_own_dataset_can_load_its_images_itself(extension: Path) -> None:
    settings = settings_from(
        extend=str(extension),
        dataset="stripes",
        target_domain="c",
        labels_per_class=2,
        batch_size=2,
        img_size=8,
        cutout=4,
    )
    data = load_data(settings)
    assert [len(part) for part in data.split] == [8, 12, 4, 12]
    (images,) = [x for _, x in PlainImages(data, data.split.target, 12, view="test").share(0, 1)]
    assert torch.equal(images.amax((1, 2, 3)) > 0, data.labels[data.split.target] == 1)
    with pytest.raises(UserError, match="no label splits were published for stripes"):
        load_data(settings_from(**{**settings.flat(), "splits": "published"}))
