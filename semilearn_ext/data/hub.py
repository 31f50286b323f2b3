"""``ssdg data prepare``: download PACS and OfficeHome from the Hugging Face Hub; for others, print manual instructions.

The Hub's parquet files hold one image per row (``image``: bytes and file name, ``domain``, ``label``). They are
unpacked to ``<name>/<domain>/<class>/*``, which is written under a temporary name and renamed once its counts are
right. An incomplete folder is therefore never mistaken for a complete one, and an interrupted download resumes with the
missing files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm import tqdm

from semilearn_ext import documents, files
from semilearn_ext.data.layouts import plain_name
from semilearn_ext.data.specs import ImageTreeSpec
from semilearn_ext.data.split_files import FETCH_SPLITS
from semilearn_ext.errors import UserError, counted, shown
from semilearn_ext.names import check_name
from semilearn_ext.registry import DATASETS


class Row(NamedTuple):
    content: bytes
    file: str
    domain: str
    label: str


def prepare(name: str, root: Path) -> str:
    """Download ``name`` into ``root``; return a message about what was done or what has to be done by hand."""
    spec = DATASETS.get(name, "dataset")
    if not isinstance(spec, ImageTreeSpec) or not (spec.hub or spec.by_hand):
        others = [other.name for other in DATASETS if isinstance(other, ImageTreeSpec) and (other.hub or other.by_hand)]
        raise UserError(f"{name!r} cannot be downloaded (datasets that can: {', '.join(others)})")
    try:
        tree = spec.tree(root)
    except UserError:
        tree = None
    folder = root / (spec.name if spec.hub else spec.folders[0])
    if tree is not None:
        folder = tree.folder or tree.root
        message = f"{name} already exists: {len(tree.items)} images in {tree.root}"
    elif spec.hub:
        message = unpack(spec, download(spec.hub), folder)
    else:
        steps = [*spec.by_hand, "Check it with: ssdg data check {name} --data_dir {root}"]
        listed = [f"{number}. {step.format(name=name, root=root)}" for number, step in enumerate(steps, start=1)]
        message = "\n".join([f"{name} has to be downloaded by hand:", *listed])
    if not spec.splits_folder:
        return message
    place = folder / spec.splits_folder
    return (
        f"{message}\nFor the paper's own label splits (--splits published), {FETCH_SPLITS} and unpack it into {place}."
    )


def download(repository: str) -> list[Path]:
    """Download the repository's parquet files into the Hub's own cache. An interrupted download is resumed."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError("huggingface_hub is not installed: pip install 'semilearn_ext[hub]'") from None
    try:
        folder = snapshot_download(repository, repo_type="dataset", allow_patterns="data/*.parquet")
    except Exception as error:  # the Hub's client raises many kinds of exceptions when it cannot be reached
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{repository}: the download from the Hugging Face Hub failed: {reason}") from None
    parquet = sorted(Path(folder, "data").glob("*.parquet"))
    if not parquet:
        raise UserError(f"{repository}: the repository has no parquet files in its folder data")
    return parquet


def unpack(spec: ImageTreeSpec, parquet: Sequence[Path], folder: Path) -> str:
    """Unpack parquet files to ``folder/<domain>/<class>/*`` and check the published counts."""
    if folder.exists():
        raise UserError(f"{folder}: exists but is not {spec.name}; move it away first")
    partial = folder.with_name(f".{folder.name}.partial")
    counts: Counter[str] = Counter()
    taken: set[Path] = set()
    total = sum(spec.counts.values())
    for number, row in enumerate(tqdm(read_rows(parquet), total=total, unit="img", desc=spec.name, disable=None)):
        if row.domain not in spec.counts:
            raise UserError(f"{spec.name}: {shown(row.domain)} is not one of its domains ({', '.join(spec.counts)})")
        counts[row.domain] += 1
        file = partial / row.domain / row.label / row.file
        if file in taken:
            file = file.with_name(f"{number:05d}_{row.file}")
        taken.add(file)
        if not file.exists():
            files.write_atomically(file, lambda out, content=row.content: out.write(content))  # type: ignore[misc]
    if dict(counts) != dict(spec.counts):
        raise UserError(
            f"{spec.name}: expected {dict(spec.counts)} images, got {dict(counts)}; the images that arrived are in "
            f"{partial}"
        )
    partial.rename(folder)
    return f"{spec.name}: {counted(total, 'image')} in {folder}"


def read_rows(parquet: Sequence[Path]) -> Iterator[Row]:
    """Yield the images of the Hub's parquet files, reading a few at a time."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise UserError("pyarrow is not installed: pip install 'semilearn_ext[hub]'") from None
    for path in parquet:
        try:
            reader = pq.ParquetFile(path)
            names = _class_names(reader.schema_arrow)
            for batch in reader.iter_batches(batch_size=64, columns=["image", "domain", "label"]):
                for row in batch.to_pylist():
                    yield Row(
                        row["image"]["bytes"], _file_name(row["image"]), plain_name(row["domain"]), names[row["label"]]
                    )
        except (OSError, KeyError, ValueError, IndexError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: not a parquet file with image, domain and label: {error}") from None


def _class_names(schema: Any) -> list[str]:
    """The class names in the order of the labels. The Hub writes them into the file's metadata."""
    metadata = documents.parse_json((schema.metadata or {})[b"huggingface"], "metadata")
    features = metadata["info"]["features"]
    return [check_name(plain_name(name), "class") for name in features["label"]["names"]]


def _file_name(image: dict[str, Any]) -> str:
    """The image's file name without folders, with a file extension."""
    name = PurePosixPath((image.get("path") or "").replace("\\", "/")).name.lstrip(".")
    name = re.sub(r"[^\w.-]", "_", name)[-100:].lstrip(".")
    if "." in name:
        return name
    extension = ".png" if image["bytes"].startswith(b"\x89PNG") else ".jpg"
    return f"{name or 'image'}{extension}"
