"""Published layouts, built small with their real folders; a person's own folder; and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from semilearn_ext.data import catalog, inspect
from semilearn_ext.data.ssdg import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, settings_from
from tests.conftest import SHARED

PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
OFFICE_DOMAINS = {"art": "Art", "clipart": "Clipart", "product": "Product", "real_world": "Real World"}
REAL_PACS = SHARED / "data"

Make = Callable[..., Settings]


def picture(path: Path, seed: int = 0, mode: str = "RGB", side: int = 20) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (side, side, 3), np.uint8)
    Image.fromarray(pixels).convert(mode).save(path)
    return path


def grow(root: Path, folders: list[str], count: int, ending: str = "jpg") -> None:
    """``count`` different pictures in each folder."""
    for number, folder in enumerate(folders):
        for k in range(count):
            picture(root / folder / f"pic_{k:03d}.{ending}", seed=1000 * number + k)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def settings(**values: Any) -> Settings:
        defaults = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache", "img_size": 16, "labels_per_class": 1}
        return settings_from(**{**defaults, "batch_size": 3, "device": "cpu", "progress": False, **values})

    return settings


def pacs(root: Path, count: int = 6, splits: bool = True) -> None:
    domains = catalog.Pacs.names
    images = root / "pacs" / "images" if splits else root / "pacs"
    grow(images, [f"{d}/{c}" for d in domains for c in PACS_CLASSES], count)
    if splits:
        (root / "pacs" / "splits").mkdir()
        for domain in domains:
            lines = [f"{domain}/{c}/pic_{k:03d}.jpg {n + 1}" for n, c in enumerate(PACS_CLASSES) for k in range(count)]
            for part, chosen in (
                ("test", lines),
                ("crossval", lines[::count]),
                ("train", sorted(set(lines) - set(lines[::count]))),
            ):
                (root / "pacs" / "splits" / f"{domain}_{part}_kfold.txt").write_text("\n".join(chosen) + "\n")


def test_pacs_with_its_split_files(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    data = load_data(make(dataset="pacs", target_domain="sketch"))
    assert [len(part) for part in data.split] == [21, 84, 21, 42]
    assert data.classes == PACS_CLASSES
    held_out = {data.items[p].name for p in data.split.source_val}
    assert held_out == {f"{d}/{c}/pic_000.jpg" for d in ("art_painting", "cartoon", "photo") for c in PACS_CLASSES}


def test_pacs_as_mirrors_carry_it(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path, splits=False)
    data = load_data(make(dataset="pacs", target_domain="photo"))
    assert [len(part) for part in data.split] == [21, 84, 21, 42]


def test_data_dir_may_be_the_benchmark_itself(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    assert load_data(make(dataset="pacs", target_domain="photo", data_dir=tmp_path / "pacs")).classes == PACS_CLASSES


def office_classes(prefix: bool = False) -> list[str]:
    return [f"{n:03d}_Thing_{n:02d}" if prefix else f"Thing_{n:02d}" for n in range(65)]


def test_office_home_of_the_dg_benchmark(make: Make, tmp_path: Path) -> None:
    folders = [f"{d}/{part}/{c}" for d in OFFICE_DOMAINS for part in ("train", "val") for c in office_classes(True)]
    grow(tmp_path / "office_home_dg", folders, 2)
    data = load_data(make(dataset="office_home", target_domain="art"))
    assert [len(part) for part in data.split] == [195, 195, 390, 260]
    assert data.classes[3] == "thing_03"
    assert all("/val/" in data.items[p].name for p in data.split.source_val)


def test_office_home_of_its_authors(make: Make, tmp_path: Path) -> None:
    grow(tmp_path / "OfficeHomeDataset", [f"{d}/{c}" for d in OFFICE_DOMAINS.values() for c in office_classes()], 3)
    data = load_data(make(dataset="office_home", target_domain="real_world"))
    assert [len(part) for part in data.split] == [195, 195, 195, 195]
    assert {data.items[p].name.split("/")[0] for p in data.split.target} == {"Real World"}


def test_digits_dg(make: Make, tmp_path: Path) -> None:
    folders = [f"{d}/{part}/{c}" for d in catalog.DigitsDG.names for part in ("train", "val") for c in range(10)]
    grow(tmp_path / "digits_dg", folders, 3)
    data = load_data(make(dataset="digits_dg", target_domain="svhn"))
    assert data.classes == tuple("0123456789")
    assert [len(part) for part in data.split] == [30, 60, 90, 60]


def domainnet(root: Path) -> None:
    classes = [f"thing_{n:03d}" for n in range(126)]
    (root / "domainnet" / "splits_mini").mkdir(parents=True)
    for d in catalog.MiniDomainNet.names:
        grow(root / "domainnet", [f"{d}/{c}" for c in [*classes, "not_in_mini"]], 3)
        for part, chosen in (("train", (0, 1)), ("test", (2,))):
            lines = [f"{d}/{c}/pic_{k:03d}.jpg {n}" for n, c in enumerate(classes) for k in chosen]
            (root / "domainnet" / "splits_mini" / f"{d}_{part}.txt").write_text("\n".join(lines))


def test_mini_domainnet(make: Make, tmp_path: Path) -> None:
    domainnet(tmp_path)
    data = load_data(make(dataset="mini_domainnet", target_domain="real"))
    assert len(data.classes) == 126
    assert [len(part) for part in data.split] == [378, 378, 378, 378]


def test_a_folder_of_ones_own(make: Make, tmp_path: Path) -> None:
    root = tmp_path / "pets"
    grow(root, [f"{d}/{c}" for d in ("day", "night", "snow") for c in ("cat", "dog")], 5, "PNG")
    (root / "day" / "cat" / ".hidden.png").write_text("no image")
    (root / "day" / "cat" / "notes.txt").write_text("no image either")
    data = load_data(make(dataset="folder", data_dir=root, target_domain="snow", batch_size=2))
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in data.split] == [4, 12, 4, 10]


def test_classes_must_agree(make: Make, tmp_path: Path) -> None:
    grow(tmp_path / "pets", ["day/cat", "day/dog", "night/cat", "night/owl"], 3)
    with pytest.raises(UserError, match="same classes: day lacks owl; night lacks dog"):
        load_data(make(dataset="folder", data_dir=tmp_path / "pets", target_domain="day"))


def test_what_was_expected_and_what_was_found(make: Make, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    with pytest.raises(UserError) as error:
        load_data(make(dataset="pacs", target_domain="photo"))
    for words in ("it holds holiday", "pacs/images/<domain>/<class>/*", "data prepare pacs --root"):
        assert words in str(error.value)
    with pytest.raises(UserError, match="there is no such folder"):
        load_data(make(dataset="pacs", target_domain="photo", data_dir=tmp_path / "nowhere"))


def test_a_missing_class_is_named(make: Make, tmp_path: Path) -> None:
    grow(tmp_path / "pacs", [f"{d}/{c}" for d in catalog.Pacs.names for c in PACS_CLASSES[:-1]], 2)
    with pytest.raises(UserError, match="pacs has 7 classes, found 6"):
        load_data(make(dataset="pacs", target_domain="photo"))


@pytest.mark.parametrize("line", ["../secret.jpg 1", "/etc/passwd 1", "art_painting/dog/pic_000.jpg", "C:\\x.jpg 1"])
def test_split_files_stay_inside(make: Make, tmp_path: Path, line: str) -> None:
    pacs(tmp_path)
    (tmp_path / "pacs" / "splits" / "photo_crossval_kfold.txt").write_text(line + "\n")
    with pytest.raises(UserError, match=r"photo_crossval_kfold.txt: line 1"):
        load_data(make(dataset="pacs", target_domain="sketch"))


def test_a_dead_link_is_no_folder(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path, splits=False)
    (tmp_path / "pacs" / "photo" / "zebra").symlink_to(tmp_path / "gone")
    assert load_data(make(dataset="pacs", target_domain="photo")).classes == PACS_CLASSES


LOAD_AS_NOBODY = """
import os, sys
from semilearn_ext.data.ssdg import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import settings_from
if os.getuid() == 0:  # who can read every folder; after the imports, for Python itself may lie in root's home
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    load_data(settings_from(dataset="pacs", data_dir=sys.argv[1], target_domain="photo", cache="none"))
except UserError as error:
    sys.exit(str(error))
"""


def test_an_unreadable_folder() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        folder.chmod(0o755)
        pacs(folder, count=1, splits=False)
        (folder / "pacs" / "photo" / "dog").chmod(0)
        loading = subprocess.run([sys.executable, "-c", LOAD_AS_NOBODY, name], capture_output=True, text=True)
    assert loading.stderr == f"{name}/pacs/photo/dog: cannot be listed: Permission denied\n"


@pytest.mark.skipif(not (REAL_PACS / "pacs").is_dir(), reason="needs the real PACS in the shared folder")
def test_real_pacs(make: Make, tmp_path: Path) -> None:
    """Counts as published, 210 labels, and no image in two parts, by name and by content."""
    tree = catalog.Pacs().tree(REAL_PACS)
    assert inspect.wrong_counts("pacs", tree) == []
    assert inspect.duplicates(tree) == []
    for target in catalog.Pacs.names:
        data = load_data(
            make(dataset="pacs", data_dir=REAL_PACS, target_domain=target, labels_per_class=10, cache="none")
        )
        assert len(data.split.labelled) == 210
        everything = [p for part in data.split for p in part]
        assert len(everything) == len(set(everything)) == 9991
        assert {data.items[p].domain for p in data.split.target} == {target}
        assert all(data.items[p].domain != target for part in data.split[:3] for p in part)


def test_published_splits_can_be_given_back(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    written = inspect.write_splits("pacs", tmp_path, 2, [1, 2], tmp_path / "splits")
    assert len(written) == 8
    assert (tmp_path / "splits" / "sketch_nlab42_seed1.json").exists()
    settings = make(dataset="pacs", target_domain="sketch", labels_per_class=2)
    own = load_data(settings)
    template = str(tmp_path / "splits" / "{target}_nlab42_seed{seed}.json")
    given = load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=template))
    assert given.split == own.split
    other = load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=template, seed=2))
    assert other.split.labelled != own.split.labelled


def given(make: Make, tmp_path: Path, change: Callable[[dict[str, Any]], object], **values: Any) -> None:
    """Load sketch's split after ``change`` to its JSON."""
    pacs(tmp_path)
    path = inspect.write_splits("pacs", tmp_path, 2, [1], tmp_path / "splits")[-1]
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=path, **values))


def test_old_class_folders_resolve(make: Make, tmp_path: Path) -> None:
    def rename(content: dict[str, Any]) -> None:
        for row in content["train_x"]:
            domain, name, file = row[0].split("/")
            row[0] = f"images/{domain}/{PACS_CLASSES.index(name):03d}_{name.title()}/{file}"

    given(make, tmp_path, rename)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["train_x"][0].__setitem__(0, "photo/dog/gone.jpg"), "gone.jpg is not in the data"),
        (lambda c: c["train_x"][0].__setitem__(0, "../../etc/passwd"), "leads outside"),
        (lambda c: c["train_x"][0].__setitem__(0, "/etc/passwd"), "leads outside"),
        (lambda c: c["train_u"].append(["sketch/dog/pic_001.jpg", 0, 3]), "is an image of the target domain 'sketch'"),
        (lambda c: c["train_u"].append(c["train_x"][0]), "named twice"),
        (lambda c: c["train_x"][0].__setitem__(1, 6), "has label 6 there and 0 in the data"),
        (lambda c: c["train_x"].pop(), "2 means 42 labelled images, but .* has 41"),
        (lambda c: c.pop("train_u"), "expected lists called train_x and train_u"),
        (lambda c: c["train_x"].append("dog"), "expected \\[path, label, domain\\]"),
    ],
)
def test_a_wrong_split_file_is_refused(
    make: Make, tmp_path: Path, change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        given(make, tmp_path, change)


def test_two_folders_of_ones_own_are_two_experiments(tmp_path: Path) -> None:
    from semilearn_ext.settings import config_hash

    one, other = (config_hash(settings_from(dataset="folder", data_dir=tmp_path / name)) for name in ("a", "b"))
    assert one != other
