"""``ssdg data check`` lists the problems of a tree, one line each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from semilearn_ext.data import checks
from semilearn_ext.errors import UserError
from tests.forked import Forked
from tests.image_trees import pacs


def test_wrong_counts_corrupt_images_and_duplicates_are_listed(tmp_path: Path) -> None:
    pacs(tmp_path, count=2, splits=False)
    root = tmp_path / "pacs"
    (root / "photo" / "dog" / "pic_000.jpg").write_bytes(b"")
    shutil.copy(root / "cartoon" / "dog" / "pic_000.jpg", root / "sketch" / "dog" / "again.jpg")
    report, problems = checks.check("pacs", tmp_path, progress=False)
    text = "\n".join(problems)
    assert "art_painting: 14 images, expected 2048 (the published number)" in text
    assert "sketch/house: 2 images, expected 80 (the published number)" in text
    assert f"{root / 'photo' / 'dog' / 'pic_000.jpg'}: corrupt or truncated image (the file is empty)" in text
    assert "identical images: cartoon/dog/pic_000.jpg, sketch/dog/again.jpg" in text
    assert "sketch" in report


def test_the_command_fails_when_something_is_wrong(tmp_path: Path) -> None:
    pacs(tmp_path, count=1, splits=False)
    process = Forked("data", "check", "pacs", "--data_dir", str(tmp_path), cwd=tmp_path)
    assert "problems found (listed above)" in process.communicate()[1].splitlines()[-1]
    assert process.returncode == 2


def test_a_dataset_without_image_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'digits_mini' is not a dataset of image files"):
        checks.check("digits_mini", tmp_path)
