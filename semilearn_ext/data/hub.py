"""``data prepare``: PACS and OfficeHome from the Hugging Face Hub; for the others, what to fetch by hand.

The Hub's parquet files hold one image a row (``image``: bytes and file name, ``domain``, ``label``). They become the
plain tree ``<name>/<domain>/<class>/*``, written into a folder beside its place and renamed when its counts are right:
half a tree never looks like a whole one, and what was written is not written again after an interruption.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from tqdm import tqdm

from semilearn_ext import files
from semilearn_ext.data.catalog import BENCHMARKS, OnDisk
from semilearn_ext.data.trees import plain_name
from semilearn_ext.errors import UserError, did_you_mean

REPOSITORIES = {"pacs": "flwrlabs/pacs", "office_home": "flwrlabs/office-home"}

BY_HAND = {
    "digits_dg": (
        "1. Get digits_dg.zip (Zhou et al., 'Deep Domain-Adversarial Image Generation', AAAI 2020): its link stands in "
        "the file DATASETS.md of the repository KaiyangZhou/Dassl.pytorch, section Digits-DG.",
        "2. Unpack it so that {root}/digits_dg/mnist/train/0/ holds images, and the same for mnist_m, svhn and syn.",
    ),
    "mini_domainnet": (
        "1. Get the cleaned archives clipart, painting, real and sketch of DomainNet (Peng et al., ICCV 2019) from "
        "the authors' page, ai.bu.edu/M3SDA, and unpack them into {root}/domainnet/.",
        "2. Get splits_mini.zip: its link stands in the file DATASETS.md of the repository KaiyangZhou/Dassl.pytorch, "
        "section miniDomainNet. Unpack it so that {root}/domainnet/splits_mini/clipart_train.txt is there.",
    ),
}


class Row(NamedTuple):
    content: bytes
    file: str
    domain: str
    label: str


def prepare(name: str, root: Path) -> str:
    """Fetch ``name`` into ``root`` and say what was done, or what is left to do by hand."""
    benchmark = _benchmark(name)
    try:
        tree = benchmark.tree(root)
    except UserError:
        tree = None
    if tree is not None:
        return f"{name} is already there: {len(tree.items)} images in {tree.root}"
    if name not in REPOSITORIES:
        steps = "\n".join(step.format(root=root) for step in BY_HAND[name])
        return f"{name} has to be fetched by hand:\n{steps}\n3. python -m semilearn_ext data check {name} --root {root}"
    return unpack(benchmark, download(REPOSITORIES[name]), root)


def _benchmark(name: str) -> OnDisk:
    made = BENCHMARKS[name]() if name in BENCHMARKS else None
    if not isinstance(made, OnDisk):
        known = [*REPOSITORIES, *BY_HAND]
        raise UserError(f"{name!r} cannot be fetched (can be: {', '.join(known)}){did_you_mean(name, known)}")
    return made


def download(repository: str) -> list[Path]:
    """The repository's parquet files in the Hub's own cache. An interrupted download goes on where it stopped."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError("huggingface_hub is not installed: pip install 'semilearn_ext[hub]'") from None
    try:
        folder = snapshot_download(repository, repo_type="dataset", allow_patterns="data/*.parquet")
    except Exception as error:  # the Hub's client raises many kinds for one thing: it cannot be reached
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{repository}: the download from the Hugging Face Hub failed: {reason}") from None
    found = sorted(Path(folder, "data").glob("*.parquet"))
    if not found:
        raise UserError(f"{repository}: no parquet files in its folder data")
    return found


def unpack(benchmark: OnDisk, parquet: Sequence[Path], root: Path) -> str:
    """Parquet files -> ``root/<name>/<domain>/<class>/*``, checked against the published counts."""
    place = root / benchmark.name
    if place.exists():
        raise UserError(f"{place}: is there but is not {benchmark.name}; move it away first")
    partial = root / f".{benchmark.name}.partial"
    counts: Counter[str] = Counter()
    total = sum(benchmark.counts.values())
    for number, row in enumerate(tqdm(read_rows(parquet), total=total, unit="img", desc=benchmark.name, disable=None)):
        counts[row.domain] += 1
        file = partial / row.domain / row.label / f"{number:05d}_{row.file}"
        if not file.exists():
            files.write_atomically(file, lambda out, content=row.content: out.write(content))  # type: ignore[misc]
    if dict(counts) != dict(benchmark.counts):
        raise UserError(
            f"{benchmark.name}: expected {dict(benchmark.counts)} images, got {dict(counts)}; what there is lies in "
            f"{partial}"
        )
    partial.rename(place)
    return f"{benchmark.name}: {total} images in {place}"


def read_rows(parquet: Sequence[Path]) -> Iterator[Row]:
    """The images of the Hub's parquet files, a few at a time."""
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
        except (OSError, KeyError, ValueError, IndexError) as error:
            raise UserError(f"{path}: not a parquet file with image, domain and label: {error}") from None


def _class_names(schema: Any) -> list[str]:
    """The Hub writes the names of the label numbers into the file's metadata."""
    features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    return [plain_name(name) for name in features["label"]["names"]]


def _file_name(image: dict[str, Any]) -> str:
    """The image's own file name, without any folder, with an ending that says what it is."""
    name = PurePosixPath((image.get("path") or "").replace("\\", "/")).name.lstrip(".")
    if "." in name:
        return name
    ending = ".png" if image["bytes"].startswith(b"\x89PNG") else ".jpg"
    return f"{name or 'image'}{ending}"
