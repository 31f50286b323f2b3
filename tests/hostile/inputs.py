"""Bad inputs by command: each must end in one line that starts with ``error:`` and exit code 2. A command that reads
many files may instead name the bad one and leave it out."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from semilearn_ext import registry
from semilearn_ext.settings.schema import KEYS, TYPES
from tests.hostile.commands import Outcome, call
from tests.image_trees import pacs, write_images
from tests.report.write_run import write_run

NOT_NUMBERS = (
    "nan",
    "inf",
    "-inf",
    "1e999",
    "9" * 400,
    "-" + "9" * 5000,
    "many",
    "",
    "[1]",
    "1,2",
    "0x1g",
    "½",
    "1e",
    "--1",
)
BAD_NAMES = (
    "/../../x",
    "..",
    ".x",
    "a/b",
    "a b",
    "a\nb",
    "\x1b[31m",
    "x" * 200,
    "-x",
    "$(touch created)",
    "a;b",
    "\udcff",
)
BAD_YAML = {
    "brackets": "a: " + "[" * 100_000,
    "dashes": "- " * 50_000,
    "braces": "{a: " * 50_000,
    "aliases": "a: &a [x]\n"
    + "".join(f"b{k}: &b{k} [{', '.join([f'*b{k - 1}' if k else '*a'] * 9)}]\n" for k in range(12)),
    "itself": "lr: &a [*a]",
    "twice": "lr: 0.1\nlr: 0.2\n",
    "object": "seed: !!python/object/apply:os.system ['touch created']\n",
    "date": "variant: 2024-99-99\n",
    "list": "- lr\n- seed\n",
    "number": "3\n",
    "unknown": "learning_rate: 0.1\n",
    "nested": "lr: {a: 1}\n",
    "listed": "seed: [1, 2]\n",
    "null": "seed: null\n",
    "truth": "variant: no\n",
    "octet": "seed: \x00\n",
    "tab": "lr:\t0.1\n\tseed: 1\n",
    "circle": "base: circle.yaml\n",
    "missing base": "base: nowhere.yaml\n",
    "base of a wrong type": "base: {a: b}\n",
    "secret base": "base: /etc/passwd\n",
    "methods of a wrong type": "methods: [a]\n",
    "code": "extend: [trap.py]\n",
    "half": "lr: 'abc\n",
    "two documents": "lr: 0.1\n---\nlr: 0.2\n",
    "a forced truth value": "seed: !!bool x\n",
    "very many keys": "".join(f"k{k}: 1\n" for k in range(40_000)) + "lr: 1\nlr: 2\n",
    "octal": "seed: 017\n",
    "base of sixty": "epoch: 1:30\n",
    "base of sixty with a fraction": "lr: 1:30.5\n",
    "hexadecimal": "seed: 0x10\n",
    "binary": "seed: 0b11\n",
    "underscores": "num_train_iter: 1_0\n",
    "digits of another script": "seed: '\u0663'\n",
    "a name that is a number": "variant: 1.10\n",
    "bytes as a name": "save_dir: !!binary aGVsbG8=\n",
    "an algorithm for some algorithms": "methods: {'*': {algorithm: fixmatch_upcsc}}\n",
    "code for some algorithms": "methods: {'*': {extend: [trap.py]}}\n",
    "home of nobody": "data_dir: ~nobody_of_this_name/x\nsave_dir: ~nobody_of_this_name/x\n",
    "a source twice": "source_domains: [print, print]\n",
    "cutout of everything": "cutout: 64\n",
    "smaller than any float": "lr: 1.0e-400\n",
    "smaller than any float, as text": "lr: 1e-400\n",
    "nothing": "",
    "only a comment": "# lr: 0.1\n",
    "weights that are not used": "pretrained: false\npretrain_path: trap.py\n",
    "weights that do not exist": "pretrained: true\nnet: resnet50\n",
}


class Case(NamedTuple):
    name: str
    words: list[str]
    left_out: str = ""
    """For a command that reads many files and continues without the bad one: text of its message."""


def settings_cases() -> Iterator[Case]:
    """Every number outside its range and every word that is not a choice, for an algorithm with that option."""
    for name, entry in KEYS.items():
        metadata = dict(entry.metadata)
        if name == "dry_run":
            continue
        yield from _values("fixmatch", name, TYPES[name], metadata)
    for spec in (*registry.ALGORITHMS, *registry.PLUGINS):
        method = spec.name if spec in list(registry.ALGORITHMS) else f"fixmatch_{spec.name}"
        if getattr(spec, "unavailable", ""):
            continue
        for name, option in spec.options.items():
            yield from _values(method, name, option.type, vars(option))


def _values(method: str, name: str, kind: Any, metadata: dict[str, Any]) -> Iterator[Case]:
    values: list[str] = []
    if kind in (int, float, float | None):
        values += [value for value in NOT_NUMBERS if not (kind == float | None and value == "none")]
        for limit, sign in (("minimum", -1), ("maximum", 1)):
            if metadata.get(limit) is not None:
                values.append(repr(metadata[limit] + sign * (1 if kind is int else 0.001)))
        values += [repr(metadata[limit]) for limit in ("above", "below") if metadata.get(limit) is not None]
        values += ["0.5"] if kind is int else []
    elif kind is bool:
        values += ["maybe", "2", "nan", "[]"]
    elif metadata.get("choices"):
        values += ["", "nothing", metadata["choices"][0].upper() + "x", "\x1b[1m"]
    elif metadata.get("check"):
        values += list(BAD_NAMES)
    for value in values:
        yield Case(f"{name}={value[:20]!r}", ["train", "--algorithm", method, f"--{name}={value}", "--dry_run"])


def yaml_cases(folder: Path) -> Iterator[Case]:
    folder.mkdir()
    for name, text in BAD_YAML.items():
        path = folder / f"{name}.yaml"
        path.write_text(text)
        yield Case(f"YAML: {name}", ["train", "--c", str(path), "--dry_run"])
        yield Case(f"YAML in a sweep: {name}", ["sweep", "--c", str(path), "--dry_run"])
    os.mkfifo(folder / "fifo.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    (folder / "folder.yaml").mkdir()
    (folder / "latin.yaml").write_bytes(b"variant: caf\xe9\n")
    with (folder / "giant.yaml").open("wb") as file:
        file.truncate(10**11)
    for name in ("fifo", "zero", "folder", "latin", "giant"):
        yield Case(f"config: {name}", ["train", "--c", str(folder / f"{name}.yaml"), "--dry_run"])


def sweep_cases(folder: Path) -> Iterator[Case]:
    grid = ["sweep", "--dry_run"]
    for flag, values in {
        "--seeds": ("1-", "5-1", "x", "1-99999999999", "-3", "", "4294967296", "1.5", "1-10000000", "9" * 5000),
        "--labels": ("0", "x", "-1", "", "1-99999999999"),
        "--algorithms": ("nothing", "fixmatch_", "", "_upcsc", "fixmatch,fixmach", "../x"),
        "--targets": ("moon", "", "../x", "all,moon"),
        "--jobs": ("0", "-1", "x", "1000000000", "9" * 400, "1.5"),
        "--jobs_per_gpu": ("0", "1000000000", "x"),
        "--time": ("x", "-1", "0", "1:2:3:4", "9" * 5000),
        "--sbatch": ("x", "=", "=1"),
        "--gpus_per_node": ("0", "x"),
        "--launcher": ("cloud",),
    }.items():
        for value in values:
            yield Case(f"sweep {flag} {value[:20]!r}", [*grid, f"{flag}={value}"])
    (folder / "empty").mkdir()
    for action in ("status", "retry"):
        for place in ("nowhere", "empty"):
            yield Case(f"sweep {action} {place}", ["sweep", action, str(folder / place)])
        yield Case(f"sweep {action} without a folder", ["sweep", action, "--seeds", "x"])
    yield Case("sweep that overwrites", [*grid, "--overwrite", "true"])
    yield Case("sweep with two axes", [*grid, "--seeds", "1", "--seed", "2"])


BAD_RESULTS: dict[str, Any] = {
    "deep": "[" * 100_000,
    "deep object": '{"a":' * 100_000,
    "list": "[1]",
    "text": '"x"',
    "null": "null",
    "huge number": '{"format": ' + "9" * 400 + "}",
    "half": '{"format": 2,',
    "binary": b"\xff\xfe\x00\x01",
    "above 1": {"top1": {"last": 1.5, "source_val": 0.5, "oracle": 0.5}},
    "negative": {"top1": {"last": -0.1, "source_val": 0.5, "oracle": 0.5}},
    "metric above 1": {"metrics": {"target/top1": 1.5}},
    "nested metric": {"metrics": {"a": {"b": 1}}},
    "seed as text": {"seed": "1"},
    "no name": {"base": ""},
    "name with newline": {"title": "a\nb"},
    "name with escape": {"title": "\x1b[31mred"},
    "variant that leaves": {"variant": "/../../x"},
    "target that leaves": {"dataset": "own", "target_domain": "../../x"},
    "dataset that leaves": {"dataset": "../../x"},
    "script": {"version": "<script>alert(1)</script>\n"},
    "long name": {"title": "x" * 100_000},
    "labels beyond": {"labels_per_class": 10**400},
    "endless time": {"seconds": 1e999},
    "negative seed": {"seed": -1},
    "plugins as text": {"plugins": "upcsc"},
    "plugin that leaves": {"plugins": ["../x"]},
    "old format": {"format": 1},
}


def results_cases(folder: Path) -> Iterator[Case]:
    """A good run and a bad one: tables must contain the good one and name the other."""
    for number, (name, content) in enumerate(BAD_RESULTS.items()):
        root = folder / f"results{number}"
        write_run(root, 80)
        bad = write_run(root, 90, target_domain="street") / "result.json"
        if isinstance(content, dict):
            content = json.dumps({**json.loads(bad.read_text()), **content})
        bad.write_bytes(content if isinstance(content, bytes) else content.encode())
        words = ["tables", str(root), "--out", str(folder / "out"), "--format", "md"]
        yield Case(f"result: {name}", words, left_out="left out")
        yield Case(f"status of result: {name}", ["sweep", "status", str(root)], left_out="2 runs")
        yield Case(f"curves of result: {name}", ["analyse", "curves", str(bad.parent), "--out", str(folder / "out")])


def special_files_cases(folder: Path) -> Iterator[Case]:
    """Pipes, devices and links in the place of the files of a run."""
    makers = {
        "fifo": os.mkfifo,
        "zero": lambda path: path.symlink_to("/dev/zero"),
        "dangling": lambda path: path.symlink_to("nowhere"),
        "folder": lambda path: path.mkdir(),
        "secret": lambda path: path.symlink_to("/etc/passwd"),
    }
    for kind, make in makers.items():
        for file in ("result.json", "config.yaml", "metrics.jsonl", "environment.json"):
            root = folder / f"special {kind} {file}"
            write_run(root, 80)
            bad = write_run(root, 90, target_domain="street") / file
            bad.unlink()
            make(bad)
            words = ["tables", str(root), "--out", str(folder / "out"), "--format", "md,html"]
            # The config is read from only one run of an experiment, which is the other one.
            message = {"result.json": "left out|unfinished", "metrics.jsonl": "warning: "}.get(file, "Wrote")
            yield Case(f"{file} is a {kind}", words, left_out=message)


def out_cases(folder: Path) -> Iterator[Case]:
    """Output that cannot be written, for every command that writes."""
    root = folder / "good"
    run = write_run(root, 80)
    file = folder / "a_file"
    file.write_text("")
    (folder / "a_folder.md").mkdir()
    write_images(folder / "own", [f"{domain}/{label}" for domain in ("ink", "oil") for label in "ab"], count=4)
    own = ["--data_dir", str(folder / "own")]
    for place in (file / "x", Path("/proc/nothing/x"), Path("/dev/null/x")):
        yield Case(f"tables --out {place}", ["tables", str(root), "--out", str(place)])
        yield Case(f"records --out {place}", ["records", str(root), "--out", str(place)])
        yield Case(
            f"curves --out {place}", ["analyse", "curves", str(run), "--out", str(place), "--metric", "target/top1"]
        )
        yield Case(f"split --out {place}", ["data", "split", "folder", *own, "--labels", "1", "--out", str(place)])
        yield Case(f"show --out {place}", ["data", "show", "folder", *own, "--out", f"{place}.png"])
        yield Case(
            f"train --save_dir {place}", ["train", "--save_dir", str(place), "--target_domain", "pen", "--epoch", "1"]
        )
    yield Case("sweep in a file", ["sweep", "--save_dir", str(file / "x"), "--dry_run"])
    yield Case("tables --out on a folder", ["tables", str(root), "--out", str(folder / "a_folder.md")])
    yield Case("show --out on a folder", ["data", "show", "folder", *own, "--out", str(folder / "own")])


def _grey(value: float, kind: Any) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(np.full((20, 20), value, kind)).save(path, "TIFF")


BAD_IMAGES: dict[str, Callable[[Path], object]] = {
    "not a number": _grey(np.nan, np.float32),
    "infinite": _grey(np.inf, np.float32),
    "negative": _grey(-1e30, np.float32),
    "beyond 16 bits": _grey(2**30, np.int32),
    "a program in PostScript": lambda path: path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    "a bomb": lambda path: path.write_bytes(b"P6 60000 60000 255\n"),
    "no content": lambda path: path.write_bytes(b""),
    "too large": lambda path: os.truncate(path, 2**31),
}


def data_cases(folder: Path) -> Iterator[Case]:
    """Invalid datasets and label splits."""
    trees = {
        "one class": ["ink/a", "oil/a", "pen/a"],
        "one domain": ["ink/a", "ink/b"],
        "classes that differ in case": ["ink/cat", "ink/Cat", "ink/dog", "oil/cat", "oil/dog", "pen/cat", "pen/dog"],
        "a domain called all": ["all/a", "all/b", "oil/a", "oil/b", "pen/a", "pen/b"],
        "a class missing": ["ink/a", "ink/b", "oil/a", "pen/a", "pen/b"],
        "domains that differ in case": ["ink/a", "ink/b", "Ink/a", "Ink/b", "pen/a", "pen/b"],
        "domains that look the same": ["\xe9/a", "\xe9/b", "e\u0301/a", "e\u0301/b", "pen/a", "pen/b"],
        "classes that look the same": [f"{d}/{c}" for d in ("ink", "oil", "pen") for c in ("\xe9", "e\u0301")],
        "escape in a class": [f"{d}/{c}" for d in ("ink", "oil", "pen") for c in ("a", "\x1b[31m")],
        "newline in a class": [f"{d}/{c}" for d in ("ink", "oil", "pen") for c in ("a", "b\nc")],
        "direction mark in a domain": [f"{d}/{c}" for d in ("in\u202ek", "oil", "pen") for c in "ab"],
        "escape in a domain": ["ink\x1b[31m/a", "ink\x1b[31m/b", "oil/a", "oil/b", "pen/a", "pen/b"],
    }
    common = ["--labels_per_class", "1", "--batch_size", "2", "--img_size", "16", "--dry_run"]
    for name, classes in trees.items():
        root = folder / name
        write_images(root, classes, count=6)
        data = ["--dataset", "folder", "--data_dir", str(root)]
        yield Case(f"data: {name}", ["train", *data, *common])
    for name, empty in (("an empty target", "pen"), ("an empty source", "oil")):
        root = folder / name
        write_images(root, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=6)
        for image in (root / empty).rglob("*.jpg"):
            image.unlink()
        data = ["--dataset", "folder", "--data_dir", str(root), "--target_domain", "pen"]
        yield Case(f"data: {name}", ["train", *data, *common])
    root = folder / "linked"
    write_images(root, [f"{domain}/{label}" for domain in ("ink", "oil") for label in "ab"], count=6)
    (root / "pen").symlink_to("ink")
    yield Case("data: a domain twice by a link", ["train", "--dataset", "folder", "--data_dir", str(root), *common])
    links = {
        "a class twice by a link": ("oil/b", "a"),
        "a class of another domain by a link": ("pen/b", "../ink/b"),
        "a class that is a link to nowhere": ("oil/c", "nowhere"),
        "a domain that is a link to nowhere": ("ice", "nowhere"),
        "an image that is a link to nowhere": ("ink/a/pic_000.jpg", "nowhere"),
        "an image that is a link to itself": ("ink/a/pic_000.jpg", "pic_000.jpg"),
        "an image that is a folder": ("ink/a/pic_000.jpg", "."),
    }
    for name, (link, place) in links.items():
        root = folder / name
        write_images(root, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=6)
        shutil.rmtree(root / link) if (root / link).is_dir() else (root / link).unlink(missing_ok=True)
        (root / link).symlink_to(place)
        yield Case(f"data: {name}", ["train", "--dataset", "folder", "--data_dir", str(root), *common])
        yield Case(f"data check: {name}", ["data", "check", "folder", "--root", str(root)])
    for name, write in BAD_IMAGES.items():
        root = folder / name
        write_images(root, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=6)
        write(root / "ink" / "a" / "pic_000.jpg")
        yield Case(f"image: {name}", ["train", "--dataset", "folder", "--data_dir", str(root), *common])
        yield Case(f"data check of an image: {name}", ["data", "check", "folder", "--root", str(root)])
    root = folder / "sound"
    write_images(root, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=6)
    train = ["train", "--dataset", "folder", "--data_dir", str(root), "--target_domain", "pen", *common]
    row = ["ink/a/0.png", 0, "ink"]
    good, other = (
        json.dumps([[f"ink/{c}/pic_000.jpg", k, "ink"] for k, c in enumerate(names)]) for names in ("ab", "ba")
    )
    splits: dict[str, Any] = {
        "deep": "[" * 100_000,
        "not a mapping": [],
        "no lists": {"train_x": {}, "train_u": 3},
        "negative labels": {"train_x": [["ink/a/0.png", -1, "ink"]], "train_u": []},
        "labels as text": {"train_x": [["ink/a/0.png", "0", "ink"]], "train_u": []},
        "labels as truth": {"train_x": [["ink/a/0.png", True, "ink"]], "train_u": []},
        "huge labels": {"train_x": [["ink/a/0.png", 10**400, "ink"]], "train_u": []},
        "path that leaves": {"train_x": [["../../etc/passwd", 0, "ink"]], "train_u": []},
        "absolute path": {"train_x": [["/etc/passwd", 0, "ink"]], "train_u": []},
        "rows of a wrong form": {"train_x": [{}], "train_u": []},
        "empty": {"train_x": [], "train_u": []},
        "twice": {"train_x": [row, row], "train_u": [row]},
        "a list twice": f'{{"train_x": {good}, "train_u": [], "train_x": {other}}}',
        "domain of no type": {"train_x": [["ink/a/pic_000.jpg", 0, None]], "train_u": []},
        "one number for two domains": {
            "train_x": [[f"{d}/a/pic_000.jpg", 0, 3] for d in ("ink", "oil")],
            "train_u": [],
        },
        "two numbers for a domain": {"train_x": [[f"ink/a/pic_00{k}.jpg", 0, k] for k in (0, 1)], "train_u": []},
        "no image left for validation": {
            part: [
                [f"{d}/{c}/pic_{k:03d}.jpg", n, d] for d in ("ink", "oil") for n, c in enumerate("ab") for k in numbers
            ]
            for part, numbers in (("train_x", range(1)), ("train_u", range(1, 6)))
        },
        "empty path": {"train_x": [["", 0, "ink"]], "train_u": []},
        "path with a null": {"train_x": [["a\0b", 0, "ink"]], "train_u": []},
    }
    for name, content in splits.items():
        path = folder / f"split {name}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        yield Case(f"split: {name}", [*train, "--split_file", str(path)])
    for name in ("/dev/zero", str(folder), "nowhere.json", "{x}", "\0", "~nobody_of_this_name/x.json"):
        yield Case(f"split file {name!r}", [*train, "--split_file", name])
    for flag, values in {
        "--labels": ("0", "-1", "x", "9" * 30),
        "--seeds": ("-1", "x", "4294967296", "9" * 5000),
    }.items():
        for value in values:
            words = [
                "data",
                "split",
                "folder",
                "--data_dir",
                str(root),
                "--labels",
                "1",
                "--out",
                str(folder / "splits"),
            ]
            yield Case(f"data split {flag} {value[:20]}", [*words, flag, value])
    for flag, values in {"--size": ("0", "-1", "x", "1000000"), "--alpha": ("nan", "-1", "7", "x")}.items():
        for value in values:
            words = ["data", "show", "folder", "--data_dir", str(root), "--out", str(folder / "a.png"), flag, value]
            yield Case(f"data show {flag} {value}", [*words, *(["--style"] if flag == "--alpha" else [])])
    for action in ("prepare", "check", "show", "split"):
        for name in ("nothing", "../x", "\x1b[31m"):
            out = ["--out", "x"] if action in ("show", "split") else []
            yield Case(f"data {action} {name!r}", ["data", action, name, *out])


BAD_LISTS = {
    "not UTF-8": b"photo/dog/pic_\xff.jpg 1\n",
    "superscript as a label": "photo/dog/pic_000.jpg \xb2\n".encode(),
    "label beyond": b"photo/dog/pic_000.jpg " + b"9" * 5000 + b"\n",
    "UTF-16": "photo/dog/pic_000.jpg 1\n".encode("utf-16"),
    "path that leaves": b"../../etc/passwd 1\n",
    "nothing": b"",
    "blank lines": b"\n \n\n",
    "another domain": b"sketch/dog/pic_000.jpg 1\n",
    "no domain": b"dog/pic_000.jpg 1\n",
    "byte order mark": b"\xef\xbb\xbfphoto/dog/pic_000.jpg 1\n",
    "absent image": b"photo/dog/pic_999.jpg 1\n",
}


def list_cases(folder: Path) -> Iterator[Case]:
    """Damaged lists of images that a benchmark publishes."""
    common = ["--dataset", "pacs", "--img_size", "16", "--labels_per_class", "1", "--batch_size", "3", "--dry_run"]
    pacs(folder / "listed", count=3)
    for name, content in BAD_LISTS.items():
        root = folder / f"list {name}"
        shutil.copytree(folder / "listed", root)
        (root / "pacs" / "splits" / "photo_crossval_kfold.txt").write_bytes(content)
        yield Case(f"list: {name}", ["train", "--data_dir", str(root), *common])
    file = folder / "list pipe" / "pacs" / "splits" / "photo_crossval_kfold.txt"
    shutil.copytree(folder / "listed", folder / "list pipe")
    file.unlink()
    os.mkfifo(file)
    yield Case("list: a pipe", ["train", "--data_dir", str(folder / "list pipe"), *common])


def analysis_cases(folder: Path) -> Iterator[Case]:
    run = str(write_run(folder / "analysed", 80))
    for flag, values in {
        "--span": ("nan", "inf", "-1", "x", "1e999"),
        "--points": ("2", "1", "0", "-3", "x", "1000000001", "nan"),
        "--images": ("-1", "x", "nan"),
        "--device": ("moon",),
    }.items():
        for value in values:
            yield Case(f"landscape {flag} {value}", ["analyse", "landscape", "--run", run, f"{flag}={value}"])
    for value in ("0", "-1", "x", "nan", "9"):
        yield Case(f"tsne --limit {value}", ["analyse", "tsne", "--run", run, f"--limit={value}"])
    for words in (["analyse"], ["analyse", "moon"], ["analyse", "curves"], ["analyse", "curves", "nowhere"]):
        yield Case(" ".join(words), words)
    for metric in ("", "nothing", "../x", "\x1b[31m", "x" * 1000):
        yield Case(f"curves --metric {metric[:10]!r}", ["analyse", "curves", run, "--metric", metric])
        yield Case(f"tables --metric {metric[:10]!r}", ["tables", run, "--metric", metric])
    for flag in ("--tables", "--compare", "--format", "--protocol"):
        for value in ("", "nothing", "a,b", "\x1b[31m"):
            yield Case(f"tables {flag} {value!r}", ["tables", run, f"{flag}={value}", "--out", str(folder / "out")])
    for words in (
        ["predict"],
        ["predict", "x.png"],
        ["predict", "nowhere.png", "--run", run],
        ["predict", run, "--run", "x"],
    ):
        yield Case(" ".join(words)[:60], words)
    for words in (
        ["job", "nowhere"],
        ["job"],
        ["list", "moon"],
        ["list", "--extend", "nowhere.py"],
        ["bench"],
        ["moon"],
    ):
        yield Case(" ".join(words), words)
    for words in (
        ["list", "--markdown", "nowhere.md"],
        ["bench", "step", "--steps", "0"],
        ["bench", "step", "--set", "x"],
    ):
        yield Case(" ".join(words), words)


RELEASED = "dataset,labels_per_class,method,target,accuracy\ndigits_mini,10,fixmatch,pen,80\n"
BAD_RELEASED = {
    "nan": RELEASED.replace(",80", ",nan"),
    "infinite": RELEASED.replace(",80", ",inf"),
    "above 100": RELEASED.replace(",80", ",180"),
    "negative": RELEASED.replace(",80", ",-3"),
    "number beyond": RELEASED.replace(",80", "," + "9" * 400),
    "words": RELEASED.replace(",80", ",good"),
    "half a label": RELEASED.replace(",10,", ",10.5,"),
    "no label": RELEASED.replace(",10,", ",0,"),
    "label in words": RELEASED.replace(",10,", ",ten,"),
    "twice": RELEASED + RELEASED.splitlines()[1] + "\n",
    "no accuracy": RELEASED.replace("accuracy", "acc"),
    "half a quote": RELEASED + '"',
    "too many values": RELEASED.replace(",80", ",80,1,2,3"),
    "nothing": "",
    "nulls": "\0\1",
}


def report_cases(folder: Path) -> Iterator[Case]:
    """Invalid results of the released code, records, methods and grids."""
    root = folder / "reported"
    run = write_run(root, 80)
    for name, text in BAD_RELEASED.items():
        file = folder / f"released {name}.csv"
        file.write_text(text)
        yield Case(f"released: {name}", ["tables", str(root), "--released", str(file), "--out", str(folder / "out")])
    yield Case("compare with itself", ["tables", str(root), "--compare", "fixmatch,fixmatch"])
    for place in (root, run, root.parent / "reported" / "digits_mini"):
        yield Case(f"records --out {place.name}", ["records", str(root), "--out", str(place)])
    yield Case("job --attempt", ["job", str(run), "--attempt=-5"])
    yield Case("job --attempt beyond", ["job", str(run), f"--attempt={'9' * 400}"])
    yield Case("a value that is no value", ["tables", str(root), "--out=--"])
    select = ["select", "--c", "fixmatch_digits_mini.yaml", "--dry_run", "--dev_seeds", "11", "--grid"]
    many = [f"{name}=" + ",".join(map(str, range(1, 2000))) for name in ("epoch", "batch_size")]
    grids = {"twice": ["lr=0.1,1e-1"], "no experiment": ["num_workers=0,1"], "many": many, "nan": ["lr=nan,1"]}
    grids |= {"empty": ["lr="], "seeds": ["seed=1,2"], "unknown": ["rate=1,2"], "path": ["data_dir=/a,/b"]}
    grids |= {"dataset": ["dataset=pacs,digits_mini"], "splits": ["splits=ours,published"]}
    for name, grid in grids.items():
        yield Case(f"select: {name}", [*select, *grid])
    for name, value in {"seed": "3", "variant": "x"}.items():
        yield Case(f"select --{name}", [*select, "p_cutoff=0.9,0.95", f"--{name}", value])
    own = {"seed": "3", "algorithm": "erm", "dataset": "pacs", "target_domain": "pen", "labels_per_class": "5"}
    for name, value in own.items():
        yield Case(f"reproduce --{name}", ["reproduce", "digits_mini", "--dry_run", f"--{name}", value])
    yield Case("doctor --set", ["doctor", "--set", "lr=nan"])
    (folder / "unmarked.md").write_text("# No table\n")
    yield Case("no table to update", ["tables", "--markdown", str(folder / "unmarked.md")])
    yield Case("sweep beyond", ["sweep", "--dry_run", "--seeds", "1-9999", "--labels", "1-9999"])
    loop = folder / "loop.py"
    loop.symlink_to(loop)
    yield Case("a link to itself as code", ["list", "--extend", str(loop)])
    for name, code in {
        "exit": "raise SystemExit(0)",
        "generator": "raise GeneratorExit",
        "deep": "f=lambda: f()\nf()",
    }.items():
        file = folder / f"{name}.py"
        file.write_text(code)
        yield Case(f"code: {name}", ["list", "--extend", str(file)])
    os.mkfifo(folder / "weights.pth")
    weights = ["train", "--dry_run", "--net", "resnet18", "--pretrained", "true", "--pretrain_path"]
    for place in (str(folder / "weights.pth"), "/dev/zero", str(folder), "nowhere.pth"):
        yield Case(f"weights: {Path(place).name}", [*weights, place])


def cases(folder: Path) -> Iterator[Case]:
    yield from settings_cases()
    yield from report_cases(folder)
    yield from yaml_cases(folder / "yaml")
    yield from sweep_cases(folder)
    yield from results_cases(folder)
    yield from special_files_cases(folder)
    yield from out_cases(folder)
    yield from data_cases(folder / "data")
    yield from list_cases(folder)
    yield from analysis_cases(folder)


def problem(case: Case, outcome: Outcome) -> str:
    """What is wrong with the outcome of a bad input: ``tracebacks``, ``accepted``, ``unreadable`` or nothing."""
    if outcome.crashed:
        return "tracebacks"
    if case.left_out:
        output = outcome.output + outcome.errors
        return (
            "" if outcome.code in (0, 2) and any(words in output for words in case.left_out.split("|")) else "accepted"
        )
    if not outcome.is_one_line:
        return "accepted"
    line = next(line for line in outcome.errors.splitlines() if line.startswith("error: "))
    return "" if line.isprintable() and len(line) < 2100 else "unreadable"


def run(folder: Path, count: int | None = None, seed: int = 0) -> Counter[str]:
    """All cases, or ``count`` of them."""
    chosen = list(cases(folder))
    if count is not None and count < len(chosen):
        chosen = random.Random(seed).sample(chosen, count)
    counts = Counter[str](inputs=0, tracebacks=0, accepted=0, unreadable=0)
    for case in chosen:
        common = ["--cache_dir", str(folder / "cache")] if case.words[0] in ("train", "sweep") else []
        outcome = call([*case.words, *common], folder)
        wrong = problem(case, outcome)
        counts["inputs"] += 1
        if wrong:
            counts[wrong] += 1
            print(
                f"{wrong}: {case.name}: exit code {outcome.code}: {(outcome.errors or outcome.output)[-400:]!r}",
                flush=True,
            )
    return counts
