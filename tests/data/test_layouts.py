"""Small trees in the published layouts, a user's own folders, label splits, and errors."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.data import checks
from semilearn_ext.data.benchmarks.digits_dg import DIGITS_DG
from semilearn_ext.data.benchmarks.mini_domainnet import MINI_DOMAINNET
from semilearn_ext.data.benchmarks.pacs import PACS
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, config_hash, settings_from
from tests.conftest import SHARED
from tests.image_trees import PACS_CLASSES, pacs, picture, write_images

OFFICE_DOMAINS = {"art": "Art", "clipart": "Clipart", "product": "Product", "real_world": "Real World"}
REAL_PACS = SHARED / "data"

Make = Callable[..., Settings]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def settings(**values: Any) -> Settings:
        defaults = {"data_dir": tmp_path, "cache_dir": tmp_path / "cache", "img_size": 16, "labels_per_class": 1}
        return settings_from(**{**defaults, "batch_size": 3, "device": "cpu", "progress": False, **values})

    return settings


def test_pacs_with_its_split_files(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    data = load_data(make(dataset="pacs", target_domain="sketch"))
    assert [len(part) for part in data.split] == [21, 84, 21, 42]
    assert data.classes == PACS_CLASSES
    held_out = {data.items[p].name for p in data.split.source_val}
    assert held_out == {f"{d}/{c}/pic_000.jpg" for d in ("art_painting", "cartoon", "photo") for c in PACS_CLASSES}


def test_pacs_in_the_layout_of_mirrors(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path, splits=False)
    data = load_data(make(dataset="pacs", target_domain="photo"))
    assert [len(part) for part in data.split] == [21, 84, 21, 42]


def test_data_dir_can_be_the_folder_of_the_dataset(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    assert load_data(make(dataset="pacs", target_domain="photo", data_dir=tmp_path / "pacs")).classes == PACS_CLASSES


def office_classes(prefix: bool = False) -> list[str]:
    return [f"{n:03d}_Thing_{n:02d}" if prefix else f"Thing_{n:02d}" for n in range(65)]


def test_office_home_in_the_layout_of_dassl(make: Make, tmp_path: Path) -> None:
    folders = [f"{d}/{part}/{c}" for d in OFFICE_DOMAINS for part in ("train", "val") for c in office_classes(True)]
    write_images(tmp_path / "office_home_dg", folders, 2)
    data = load_data(make(dataset="office_home", target_domain="art"))
    assert [len(part) for part in data.split] == [195, 195, 390, 260]
    assert data.classes[3] == "thing_03"
    assert all("/val/" in data.items[p].name for p in data.split.source_val)


def test_office_home_in_the_layout_of_its_authors(make: Make, tmp_path: Path) -> None:
    write_images(
        tmp_path / "OfficeHomeDataset", [f"{d}/{c}" for d in OFFICE_DOMAINS.values() for c in office_classes()], 3
    )
    data = load_data(make(dataset="office_home", target_domain="real_world"))
    assert [len(part) for part in data.split] == [195, 195, 195, 195]
    assert {data.items[p].name.split("/")[0] for p in data.split.target} == {"Real World"}


def test_office_home_classes_are_numbered_as_in_the_released_code(make: Make, tmp_path: Path) -> None:
    """The released code sorts folder names, capitals first. The number prefix of older names gives the same order."""
    classes = [*office_classes()[:-5], "Alarm_Clock", "TV", "Table", "ToothBrush", "Trash_Can"]
    write_images(tmp_path / "OfficeHomeDataset", [f"{d}/{c}" for d in OFFICE_DOMAINS.values() for c in classes], 3)
    data = load_data(make(dataset="office_home", target_domain="art"))
    assert data.classes == tuple(name.lower() for name in sorted(classes))


def test_digits_dg(make: Make, tmp_path: Path) -> None:
    folders = [f"{d}/{part}/{c}" for d in DIGITS_DG.domains for part in ("train", "val") for c in range(10)]
    write_images(tmp_path / "digits_dg", folders, 3)
    data = load_data(make(dataset="digits_dg", target_domain="svhn"))
    assert data.classes == tuple("0123456789")
    assert [len(part) for part in data.split] == [30, 60, 90, 60]


def domainnet(root: Path, lists: str = "splits_mini") -> None:
    classes = [f"thing_{n:03d}" for n in range(126)]
    (root / "domainnet" / lists).mkdir(parents=True)
    for d in MINI_DOMAINNET.domains:
        write_images(root / "domainnet", [f"{d}/{c}" for c in [*classes, "not_in_mini"]], 3)
        for part, chosen in (("train", (0, 1)), ("test", (2,))):
            lines = [f"{d}/{c}/pic_{k:03d}.jpg {n}" for n, c in enumerate(classes) for k in chosen]
            (root / "domainnet" / lists / f"{d}_{part}.txt").write_text("\n".join(lines))


@pytest.mark.parametrize("lists", ["splits_mini", "splits_mini_ssdg"])
def test_mini_domainnet(make: Make, tmp_path: Path, lists: str) -> None:
    """Its lists are in the folder of Dassl's archive or in that of the paper's README."""
    domainnet(tmp_path, lists)
    data = load_data(make(dataset="mini_domainnet", target_domain="real"))
    assert len(data.classes) == 126
    assert [len(part) for part in data.split] == [378, 378, 378, 378]


def test_lists_of_another_domain_are_refused(make: Make, tmp_path: Path) -> None:
    domainnet(tmp_path)
    files = [tmp_path / "domainnet" / "splits_mini" / f"{d}_train.txt" for d in ("real", "sketch")]
    for file, text in zip(files, [file.read_text() for file in reversed(files)], strict=True):
        file.write_text(text)
    with pytest.raises(UserError, match=r"real_train.txt: sketch/.* is not an image of 'real'"):
        load_data(make(dataset="mini_domainnet", target_domain="clipart"))


def test_a_class_with_two_labels_is_refused(make: Make, tmp_path: Path) -> None:
    domainnet(tmp_path)
    for file in (tmp_path / "domainnet" / "splits_mini").glob("*.txt"):
        last = [line for line in file.read_text().splitlines() if line.endswith(" 125")]
        first = next(line for line in file.read_text().splitlines() if line.endswith(" 0")).removesuffix(" 0")
        kept = "".join(f"{line}\n" for line in file.read_text().splitlines() if line not in last)
        file.write_text(f"{kept}{Path(first).parent / f'{file.stem}.jpg'} 125\n")
    with pytest.raises(UserError, match="the split files have 2 labels for the class"):
        load_data(make(dataset="mini_domainnet", target_domain="clipart"))


def test_mini_domainnet_labels_all_images_of_a_small_class(make: Make, tmp_path: Path) -> None:
    """As in the released loader. For other datasets, a class with too few images is an error."""
    domainnet(tmp_path)
    path = tmp_path / "domainnet" / "splits_mini" / "sketch_train.txt"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if line != "sketch/thing_005/pic_001.jpg 5"))
    values = {"dataset": "mini_domainnet", "target_domain": "real", "labels_per_class": 2, "cache": "none"}
    with pytest.raises(UserError, match="has only 0; lower batch_size"):
        load_data(make(**values))
    more = [f"sketch/thing_000/pic_{k:03d}.jpg 0" for k in range(3, 5)]
    for d in ("clipart", "painting", "sketch"):
        write_images(tmp_path / "domainnet" / d, ["thing_000"], 5)
        with (tmp_path / "domainnet" / "splits_mini" / f"{d}_train.txt").open("a") as file:
            file.writelines(f"\n{line}" for line in (row.replace("sketch", d) for row in more))
    data = load_data(make(**values))
    assert data.short_classes == data.split_json()["short_classes"] == {"sketch/thing_005": 1}
    assert len(data.split.labelled) == 2 * 126 * 3 - 1
    (note,) = data.notes()
    assert note == "classes with fewer than 2 training images in a source domain, all of them labelled: 1"
    with pytest.raises(UserError, match=r"sketch/thing_005 has only 1 training images.*--few_labels take_all"):
        load_data(make(**values, few_labels="error"))
    written = checks.write_splits("mini_domainnet", tmp_path, 2, [1], tmp_path / "splits")
    assert written[0].name == f"clipart_nlab{2 * 126 * 3}_seed1.json"


def test_a_users_own_folder(make: Make, tmp_path: Path) -> None:
    root = tmp_path / "pets"
    write_images(root, [f"{d}/{c}" for d in ("day", "night", "snow") for c in ("cat", "dog")], 5, "PNG")
    (root / "day" / "cat" / ".hidden.png").write_text("no image")
    (root / "day" / "cat" / "notes.txt").write_text("no image either")
    data = load_data(make(dataset="folder", data_dir=root, target_domain="snow", batch_size=2))
    assert data.classes == ("cat", "dog")
    assert [len(part) for part in data.split] == [4, 12, 4, 10]


def test_classes_must_agree(make: Make, tmp_path: Path) -> None:
    write_images(tmp_path / "pets", ["day/cat", "day/dog", "night/cat", "night/owl"], 3)
    with pytest.raises(UserError, match="same classes: day lacks owl; night lacks dog"):
        load_data(make(dataset="folder", data_dir=tmp_path / "pets", target_domain="day"))


def test_missing_data_name_what_was_expected_and_found(make: Make, tmp_path: Path) -> None:
    (tmp_path / "holiday").mkdir()
    with pytest.raises(UserError) as error:
        load_data(make(dataset="pacs", target_domain="photo"))
    for words in ("it contains holiday", "pacs/images/<domain>/<class>/*", "data prepare pacs --data_dir"):
        assert words in str(error.value)
    with pytest.raises(UserError, match="the folder does not exist"):
        load_data(make(dataset="pacs", target_domain="photo", data_dir=tmp_path / "nowhere"))


def test_a_missing_class_is_named(make: Make, tmp_path: Path) -> None:
    write_images(tmp_path / "pacs", [f"{d}/{c}" for d in PACS.domains for c in PACS_CLASSES[:-1]], 2)
    with pytest.raises(UserError, match="pacs has 7 classes, found 6"):
        load_data(make(dataset="pacs", target_domain="photo"))


@pytest.mark.parametrize("line", ["../secret.jpg 1", "/etc/passwd 1", "art_painting/dog/pic_000.jpg", "C:\\x.jpg 1"])
def test_split_files_cannot_name_files_outside_the_folder(make: Make, tmp_path: Path, line: str) -> None:
    pacs(tmp_path)
    (tmp_path / "pacs" / "splits" / "photo_crossval_kfold.txt").write_text(line + "\n")
    with pytest.raises(UserError, match=r"photo_crossval_kfold.txt: line 1"):
        load_data(make(dataset="pacs", target_domain="sketch"))


@pytest.mark.parametrize("place", ["photo/zebra", "photo/dog/pic_099.jpg"])
def test_a_broken_link_is_named(make: Make, tmp_path: Path, place: str) -> None:
    """Images may be links, for example with git-annex, and would be missing without a word."""
    pacs(tmp_path, splits=False)
    (tmp_path / "pacs" / place).symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match=f"{place}: is a symbolic link that leads nowhere; restore its target"):
        load_data(make(dataset="pacs", target_domain="photo"))


LOAD_AS_NOBODY = """
import os, sys
import semilearn_ext.data.image_tree  # which the registry loads on demand, when Python's files may be out of reach
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import settings_from
if os.getuid() == 0:  # root can read every folder; after the imports, because Python may be installed in root's home
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    load_data(settings_from(dataset="pacs", data_dir=sys.argv[1], target_domain="photo", cache="none"))
except UserError as error:
    sys.exit(str(error))
"""


def test_an_unreadable_folder_is_named() -> None:
    with tempfile.TemporaryDirectory() as name:  # other users cannot read pytest's own folders
        folder = Path(name)
        folder.chmod(0o755)
        pacs(folder, count=1, splits=False)
        (folder / "pacs" / "photo" / "dog").chmod(0)
        loading = subprocess.run([sys.executable, "-c", LOAD_AS_NOBODY, name], capture_output=True, text=True)
    assert loading.stderr == f"{name}/pacs/photo/dog: cannot be listed: Permission denied\n"


@pytest.mark.skipif(not (REAL_PACS / "pacs").is_dir(), reason="needs the real PACS in the shared folder")
def test_real_pacs(make: Make, tmp_path: Path) -> None:
    """The published counts, 210 labels, and no image in two parts, by name or by content."""
    tree = PACS.tree(REAL_PACS)
    assert checks.wrong_counts(PACS, tree) == []
    assert checks.duplicates(tree) == []
    for target in PACS.domains:
        data = load_data(
            make(dataset="pacs", data_dir=REAL_PACS, target_domain=target, labels_per_class=10, cache="none")
        )
        assert len(data.split.labelled) == 210
        positions = [p for part in data.split for p in part]
        assert len(positions) == len(set(positions)) == 9991
        assert {data.items[p].domain for p in data.split.target} == {target}
        assert all(data.items[p].domain != target for part in data.split[:3] for p in part)


def test_written_splits_can_be_read_again(make: Make, tmp_path: Path) -> None:
    pacs(tmp_path)
    written = checks.write_splits("pacs", tmp_path, 2, [1, 2], tmp_path / "splits")
    assert len(written) == 8
    assert (tmp_path / "splits" / "sketch_nlab42_seed1.json").exists()
    settings = make(dataset="pacs", target_domain="sketch", labels_per_class=2)
    drawn = load_data(settings)
    template = str(tmp_path / "splits" / "{target}_nlab42_seed{seed}.json")
    read = load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=template))
    assert read.split == drawn.split
    rows = json.loads((tmp_path / "splits" / "sketch_nlab42_seed1.json").read_text())["train_x"]
    assert all(name.split("/")[0] == domain for name, _, domain in rows)
    other = load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=template, seed=2))
    assert other.split.labelled != drawn.split.labelled


def load_changed_split(make: Make, tmp_path: Path, change: Callable[[dict[str, Any]], object], **values: Any) -> None:
    """Load sketch's split after ``change`` to its JSON."""
    pacs(tmp_path)
    path = checks.write_splits("pacs", tmp_path, 2, [1], tmp_path / "splits")[-1]
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    load_data(make(dataset="pacs", target_domain="sketch", labels_per_class=2, split_file=path, **values))


def test_split_files_with_numbered_domains_and_reordered_classes(make: Make, tmp_path: Path) -> None:
    def renumber(content: dict[str, Any]) -> None:
        for row in [*content["train_x"], *content["train_u"]]:
            row[1:] = [6 - row[1], PACS.domains.index(row[2])]

    load_changed_split(make, tmp_path, renumber)


def test_class_folders_of_older_layouts_are_recognised(make: Make, tmp_path: Path) -> None:
    def rename(content: dict[str, Any]) -> None:
        for row in content["train_x"]:
            domain, name, file = row[0].split("/")
            row[0] = f"images/{domain}/{PACS_CLASSES.index(name):03d}_{name.title()}/{file}"

    load_changed_split(make, tmp_path, rename)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: c["train_x"][0].__setitem__(0, "photo/dog/gone.jpg"), "gone.jpg is not in the data"),
        (lambda c: c["train_x"][0].__setitem__(0, "../../etc/passwd"), "leads outside"),
        (lambda c: c["train_x"][0].__setitem__(0, "/etc/passwd"), "leads outside"),
        (lambda c: c["train_u"].append(["sketch/dog/pic_001.jpg", 0, 3]), "is an image of the target domain 'sketch'"),
        (lambda c: c["train_u"][0].__setitem__(2, "photo"), "is listed under domain 'photo', but is in 'art_painting'"),
        (lambda c: c["train_u"].append(c["train_x"][0]), "listed twice"),
        (lambda c: c["train_x"][0].__setitem__(1, 6), "has label 0, unlike other images of its class"),
        (lambda c: c["train_x"].pop(), "2 labels per class requested, but class 'person' of domain 'photo' has 1"),
        (lambda c: c.pop("train_u"), "expected lists called train_x and train_u"),
        (lambda c: c["train_x"].append("dog"), "expected \\[path, label, domain\\]"),
    ],
)
def test_an_invalid_split_file_is_refused(
    make: Make, tmp_path: Path, change: Callable[[dict[str, Any]], object], expected: str
) -> None:
    with pytest.raises(UserError, match=expected):
        load_changed_split(make, tmp_path, change)


def test_two_folders_of_a_user_are_two_experiments(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_images(tmp_path / name, ["day/cat", "night/cat"], 1)
    first, second = (
        config_hash(settings_from(dataset="folder", data_dir=tmp_path / name, cache_dir=tmp_path))
        for name in ("a", "b")
    )
    assert first != second


RELEASED = Path(__file__).parents[1] / "fixtures" / "splits" / "sketch_nlab21_seed1.json"


def released_pacs(root: Path) -> dict[str, Any]:
    """PACS with the images of an excerpt of a released split, and that split in the folder of its archive."""
    rows = json.loads(RELEASED.read_text())
    names = [row[0] for part in rows.values() for row in part]
    names += [f"sketch/{name}/{k}.png" for name in PACS_CLASSES for k in range(2)]
    names += [f"{domain}/{name}/held_out.jpg" for domain in PACS.domains for name in PACS_CLASSES]
    for seed, name in enumerate(names):
        picture(root / "pacs" / name, seed)
    (root / "pacs" / "splits_ssdg").mkdir()
    shutil.copy(RELEASED, root / "pacs" / "splits_ssdg")
    return rows


def test_published_splits_are_used_with_one_option(make: Make, tmp_path: Path) -> None:
    rows = released_pacs(tmp_path)
    settings = make(dataset="pacs", target_domain="sketch", splits="published")
    data = load_data(settings)
    for part, key in ((data.split.labelled, "train_x"), (data.split.unlabelled, "train_u")):
        assert [[data.items[p].name, data.items[p].label, data.items[p].domain] for p in part] == rows[key]
    record = data.split_json()
    assert record["train_x"] == rows["train_x"]
    assert record["split_file"] == RELEASED.name
    assert record["split_sha256"] == hashlib.sha256(RELEASED.read_bytes()).hexdigest()
    assert config_hash(settings) != config_hash(make(dataset="pacs", target_domain="sketch"))


def test_missing_published_splits_are_named_with_their_source(make: Make, tmp_path: Path) -> None:
    released_pacs(tmp_path)
    folder = tmp_path / "pacs" / "splits_ssdg"
    with pytest.raises(UserError) as error:
        load_data(make(dataset="pacs", target_domain="photo", splits="published", seed=3))
    message = str(error.value)
    assert "\n" not in message
    for words in (str(folder / "photo_nlab21_seed3.json"), "github.com/dongkwani/UPCSC", f"unpack it into {folder}"):
        assert words in message


def test_datasets_without_published_splits_are_refused(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no label splits were published for digits_mini; use --splits ours"):
        load_data(make(dataset="digits_mini", target_domain="pen", splits="published"))
    released_pacs(tmp_path)
    with pytest.raises(UserError, match="cannot be combined with splits: published"):
        load_data(make(dataset="pacs", target_domain="sketch", splits="published", split_file=RELEASED))


@pytest.mark.skipif(not (REAL_PACS / "pacs" / "splits_ssdg").is_dir(), reason="needs the real PACS and its splits")
def test_published_splits_of_real_pacs(make: Make) -> None:
    """They contain all images but one, which is corrupt in some mirrors and which the released code never uses."""
    for target in PACS.domains:
        values = {"dataset": "pacs", "data_dir": REAL_PACS, "target_domain": target, "labels_per_class": 10}
        data = load_data(make(**values, cache="none", splits="published"))
        assert len(data.split.labelled) == 210
        used = {p for part in data.split for p in part}
        assert sum(len(part) for part in data.split) == len(used)
        unused = {item.name for position, item in enumerate(data.items) if position not in used}
        assert unused == (set() if target == "sketch" else {"sketch/dog/n02103406_4068-1.png"})


@pytest.mark.parametrize(
    ("folders", "words"),
    [
        (["ink/a", "oil/a"], "only one class, 'a'"),
        (["ink/cat", "ink/Cat", "ink/dog", "oil/cat", "oil/dog"], "'Cat' and 'cat' would be the same class, 'cat'"),
        (["all/a", "all/b", "oil/a", "oil/b"], "a domain cannot be called 'all'"),
        (["ink\x1b[1m/a", "ink\x1b[1m/b", "oil/a", "oil/b"], "is not a valid folder name"),
    ],
)
def test_invalid_image_folders_are_refused(folders: list[str], words: str, tmp_path: Path) -> None:
    write_images(tmp_path, folders, count=2)
    settings = settings_from(dataset="folder", data_dir=str(tmp_path), target_domain="oil", batch_size=1)
    with pytest.raises(UserError, match=words):
        load_data(settings)
