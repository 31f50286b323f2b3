"""Values of other types in the files of a run and in checkpoints, with correct checksums, as somebody else may write
them. Every command ends in one line, leaves the run out, or takes the value; none crashes."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import yaml

from semilearn_ext import training
from semilearn_ext.engine import checkpoint
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import settings_from
from tests.hostile.commands import Outcome, call
from tests.hostile.flips import SMALL
from tests.image_trees import write_images

VALUES: tuple[Any, ...] = (
    *(None, True, 3, -1, 1.5, 10**299, float("nan"), float("inf"), "", "x", "=1+1", "../../x", "$\\frac{$"),
    *("a\nb\x1b[31m<script>", "x" * 300, [], {}, [None], [[[]]], {"a": {"b": 1}}),
)
TENSORS: tuple[Any, ...] = (
    *(torch.zeros(()), torch.zeros(0), torch.zeros(2, 3), torch.tensor([1, 2]), torch.tensor(True)),
    *(torch.zeros(3, dtype=torch.complex64), torch.zeros(1, 1, 1, 1, 1), torch.eye(3).to_sparse()),
)
RECORDS = ("result.json", "identity.json", "environment.json", "split.json", "details.json", "metrics.jsonl")
OWN: dict[str, Any] = {
    **SMALL,
    "algorithm": "fixmatch_upcsc",
    "dataset": "folder",
    "img_size": 16,
    "cutout": 4,
    "labels_per_class": 1,
    "batch_size": 4,
    "average": "both",
}


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in nested mappings and lists; only the first two of a list."""
    if place:
        yield place
    entries = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, entry in entries:
        yield from places(entry, (*place, name))


def swapped(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    changed = copy.deepcopy(value)
    owner = changed
    for name in place[:-1]:
        owner = owner[name]
    owner[place[-1]] = new
    return changed


def seal(run: RunFolder, result: Any = None) -> None:
    """Write the result, or the one that is there, with checksums of all files."""
    if result is None:
        result = run.read_result()
        result |= {"metrics_sha256": run.metrics_hash(), "details_sha256": run.details_hash()}
        result["files_sha256"] = run.file_hashes()
    run.write_result(result) if isinstance(result, dict) else run.result_file.write_text(json.dumps(result))


def train(folder: Path, **more: Any) -> tuple[list[str], RunFolder]:
    """Train a small run on own images; the words that train it again elsewhere, and its folder."""
    write_images(folder / "own", [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "abcde"], 6)
    values = {**OWN, "data_dir": str(folder / "own"), "cache_dir": str(folder / "cache"), **more}
    settings = settings_from(**values, save_dir=str(folder / "sound"))
    training.run(settings)
    return ["train", *(word for item in values.items() for word in (f"--{item[0]}", str(item[1])))], RunFolder(
        run_path(settings)
    )


def in_records(folder: Path, count: int, seed: int) -> Counter[str]:
    """Swaps in the files of a finished run and of one that is resumed, under the commands that read them."""
    words, sound = train(folder)
    place_of_run = sound.path.relative_to(folder / "sound")
    contents = {name: (sound.path / name).read_text() for name in RECORDS}
    parsed: dict[str, Any] = {name: json.loads(text) for name, text in contents.items() if name != "metrics.jsonl"}
    parsed["metrics.jsonl"] = [json.loads(line) for line in contents["metrics.jsonl"].splitlines()]
    parsed["config.yaml"] = yaml.safe_load(sound.config_file.read_text())
    chosen = [(name, place, new) for name, value in parsed.items() for place in places(value) for new in VALUES]
    counts, draw = Counter[str](), random.Random(seed)
    for name, place, new in draw.sample(chosen, min(count, len(chosen))):
        for used in ("copy", "out", "records"):
            shutil.rmtree(folder / used, ignore_errors=True)
        shutil.copytree(folder / "sound", folder / "copy")
        run, value = RunFolder(folder / "copy" / place_of_run), swapped(parsed[name], place, new)
        if name == "metrics.jsonl":
            (run.path / name).write_text("".join(json.dumps(line) + "\n" for line in value))
        elif name != "result.json":
            (run.path / name).write_text(yaml.safe_dump(value) if name == "config.yaml" else json.dumps(value))
        seal(run, value if name == "result.json" else None)
        commands = _commands(words, folder, run)
        resumed = draw.random() < 0.3
        if resumed:
            run.result_file.unlink()
        for command in commands if not resumed else [commands[0]]:
            counts += _counted(call(command, folder), f"{' '.join(command[:2])}: {name}: {place} = {new!r:.40}")
        counts["swaps"] += 1
    return counts


def _commands(words: list[str], folder: Path, run: RunFolder) -> list[list[str]]:
    runs, out = str(folder / "copy"), ["--out", str(folder / "out")]
    image = str(next((folder / "own").rglob("*.jpg")))
    return [
        [*words, "--save_dir", runs],
        [*words, "--save_dir", runs, "--dry_run"],
        ["tables", runs, *out],
        ["records", runs, "--out", str(folder / "records")],
        ["tables", str(folder / "records"), *out],
        ["claims", runs, "--out", str(folder / "claims.md")],
        ["sweep", "status", runs],
        *(["analyse", figure, runs, *out] for figure in ("curves", "gains", "confusion", "reliability")),
        ["predict", image, "--run", str(run.path)],
    ]


def in_checkpoint(folder: Path, count: int, seed: int) -> Counter[str]:
    """Swaps in the checkpoint of an unfinished run, which is resumed."""
    with mock.patch.object(checkpoint, "checkpoint_files", return_value=[]):  # a finished run would remove the first
        words, sound = train(folder, checkpoint_every=2)
    sound.result_file.unlink()
    file = sound.checkpoint_file(2)
    state = checkpoint.load(file)
    sound.checkpoint_file(4).unlink()
    place_of_run = sound.path.relative_to(folder / "sound")
    chosen = [(place, new) for place in places(state) for new in (*VALUES[:12], *TENSORS) if place != ("iteration",)]
    counts = Counter[str]()
    for place, new in random.Random(seed).sample(chosen, min(count, len(chosen))):
        shutil.rmtree(folder / "copy", ignore_errors=True)
        shutil.copytree(folder / "sound", folder / "copy", ignore=shutil.ignore_patterns("checkpoint*"))
        checkpoint.save(folder / "copy" / place_of_run, swapped(state, place, new))
        outcome = call([*words, "--checkpoint_every", "2", "--save_dir", str(folder / "copy")], folder)
        counts += _counted(outcome, f"checkpoint: {place} = {str(new).replace(chr(10), ' '):.40}")
        counts["swaps"] += 1
    return counts


def _counted(outcome: Outcome, name: str) -> Counter[str]:
    printed = (outcome.output + outcome.errors).replace("\n", "").replace("\t", "").replace("\r", "")
    wrong = "tracebacks" if outcome.crashed else "" if printed.isprintable() else "unreadable"
    if wrong:
        print(f"{wrong}: {name}: {outcome.errors[-400:]!r}", flush=True)
    return Counter({wrong: 1} if wrong else {})


def run(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    counts = Counter[str]()
    for name, swap in (("records", in_records), ("checkpoint", in_checkpoint)):
        (folder / name).mkdir()
        counts += swap(folder / name, count // 2, seed)
    return {name: counts[name] for name in ("swaps", "tracebacks", "unreadable")}
