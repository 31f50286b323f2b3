"""``ssdg data prepare`` converts parquet files to a complete tree or none, and explains other datasets."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from semilearn_ext.data import hub
from semilearn_ext.data.benchmarks.pacs import PACS
from semilearn_ext.errors import UserError

CLASSES = ["dog", "elephant", "giraffe", "guitar", "horse", "house", "person"]


SMALL_PACS = replace(PACS, counts=dict.fromkeys(PACS.domains, 7))


def image_bytes(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def write_parquet(path: Path, paths: list[str | None] | None = None, leave_out: int = 0, per_class: int = 1) -> Path:
    """A file with the Hub's schema: image {bytes, path}, domain, label, and class names in the metadata."""
    rows: list[dict[str, Any]] = [
        {"image": {"bytes": image_bytes(7 * d + c + 28 * n), "path": f"pic_{c}_{n}.jpg"}, "domain": domain, "label": c}
        for d, domain in enumerate(PACS.domains)
        for c in range(7)
        for n in range(per_class)
    ][leave_out:]
    for row, name in zip(rows, paths or [], strict=False):
        row["image"]["path"] = name
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    info = {"info": {"features": {"label": {"names": CLASSES, "_type": "ClassLabel"}}}}
    schema = pa.schema([("image", image), ("domain", pa.string()), ("label", pa.int64())])
    schema = schema.with_metadata({"huggingface": json.dumps(info)})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path)
    return path


def test_parquet_becomes_a_tree_that_is_recognised(tmp_path: Path) -> None:
    message = hub.unpack(SMALL_PACS, [write_parquet(tmp_path / "train.parquet")], tmp_path / "data" / "pacs")
    assert "28 images" in message
    tree = SMALL_PACS.tree(tmp_path / "data")
    assert len(tree.items) == 28
    assert list(tree.classes) == CLASSES
    assert tree.path(tree.items[0]).read_bytes() == image_bytes(0)
    assert hub.prepare("pacs", tmp_path / "data").startswith("pacs already exists")


def test_an_incomplete_tree_is_never_left_in_place(tmp_path: Path) -> None:
    short = write_parquet(tmp_path / "short.parquet", leave_out=3)
    with pytest.raises(UserError, match=r"expected .*'art_painting': 7.* got .*'art_painting': 4"):
        hub.unpack(SMALL_PACS, [short], tmp_path / "data" / "pacs")
    assert not (tmp_path / "data" / "pacs").exists()
    complete = write_parquet(tmp_path / "complete.parquet")
    with pytest.raises(UserError, match="no pacs in"):
        SMALL_PACS.tree(tmp_path / "data")
    hub.unpack(SMALL_PACS, [complete], tmp_path / "fresh" / "pacs")
    assert len(SMALL_PACS.tree(tmp_path / "fresh").items) == 28


def test_file_names_cannot_leave_the_folder(tmp_path: Path) -> None:
    malicious: list[str | None] = ["../../../evil.jpg", "/etc/passwd.jpg", "..", None, "a\\..\\b.jpg"]
    parquet = write_parquet(tmp_path / "evil.parquet", paths=malicious)
    hub.unpack(SMALL_PACS, [parquet], tmp_path / "data" / "pacs")
    outside = [p for p in tmp_path.rglob("*.jpg") if not p.is_relative_to(tmp_path / "data" / "pacs")]
    assert outside == []
    assert len(SMALL_PACS.tree(tmp_path / "data").items) == 28


def test_an_existing_folder_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "data" / "pacs").mkdir(parents=True)
    with pytest.raises(UserError, match="move it away first"):
        hub.unpack(SMALL_PACS, [write_parquet(tmp_path / "train.parquet")], tmp_path / "data" / "pacs")


def test_an_invalid_file_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "wrong.parquet").write_bytes(b"not parquet")
    with pytest.raises(UserError, match="not a parquet file with image, domain and label"):
        hub.unpack(SMALL_PACS, [tmp_path / "wrong.parquet"], tmp_path / "data" / "pacs")


@pytest.mark.parametrize("name", ["digits_dg", "mini_domainnet"])
def test_datasets_without_a_download_are_explained(name: str, tmp_path: Path) -> None:
    message = hub.prepare(name, tmp_path)
    assert "by hand" in message
    assert f"data check {name} --data_dir {tmp_path}" in message


def test_an_unknown_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'pasc' is not a known dataset; did you mean 'pacs'"):
        hub.prepare("pasc", tmp_path)


@pytest.mark.parametrize(("domain", "file"), [("../../x", "a.jpg"), ("photo", "../../../x.jpg"), ("photo", "a\0b.jpg")])
def test_names_from_the_hub_stay_inside_the_folder(domain: str, file: str, tmp_path: Path) -> None:
    assert "/" not in hub._file_name({"path": file, "bytes": b""})
    assert "\0" not in hub._file_name({"path": file, "bytes": b""})
    if domain != "photo":
        row = hub.Row(b"x", "a.jpg", domain, "dog")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(hub, "read_rows", lambda _: [row])
            with pytest.raises(UserError, match="is not one of its domains"):
                hub.unpack(PACS, [], tmp_path / "data" / "pacs")
        assert not list(tmp_path.rglob("*.jpg"))
