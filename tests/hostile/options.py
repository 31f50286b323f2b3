"""Every option of every command with unusual values: a command refuses them in one line or accepts them, but never ends
in a traceback, hangs or prints control characters."""

from __future__ import annotations

import argparse
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from semilearn_ext import registry
from semilearn_ext.__main__ import parser
from semilearn_ext.settings.schema import KEYS, TYPES
from tests.hostile.commands import Outcome, call
from tests.hostile.inputs import Case
from tests.image_trees import write_images
from tests.report.write_run import domains, write_run

# They contain no device file of this machine, because a faulty command could overwrite it.
TEXTS = (
    *("", " ", "nan", "-1", "0", "1e400", "9" * 400, "x" * 5000, "\x1b[31m", "\udcff", "é", "日本", "\u202e", "\n"),
    *(
        "..",
        "~nobody/x",
        "~",
        "none",
        "true",
        "{}",
        "[",
        "*",
        "%s",
        "{target}",
        "-",
        "--",
        "a=b",
    ),
    *(
        "=",
        ",",
        ",,",
        "1-",
        "0x10",
        "\u0661",
        "1_0",
        "a,a",
        "lr=0.1",
        "lr=",
        "seed=1,2",
        "lr=nan,1",
        "lr=0.1,0.10",
        "nan=1,2",
    ),
)
_WORDS = (str, tuple[str, ...])
_LEFT_OUT = {"help", "version", "trust", "dry_run", "with_base", "check", "float32", "style"}


def special_places(folder: Path) -> list[str]:
    """Files and folders of every kind, each by its path."""
    folder.mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "empty_file").touch()
    (folder / "empty_folder").mkdir()
    (folder / "binary").write_bytes(bytes(range(256)) * 40)
    (folder / "huge").touch()
    os.truncate(folder / "huge", 10**11)
    for name, text in SPECIAL_CODE.items():
        (folder / f"{name}.py").write_text(text)
    return [str(path) for path in sorted(folder.iterdir())]


SPECIAL_CODE = {
    "exit": "raise SystemExit(0)\n",
    "interrupt": "raise KeyboardInterrupt\n",
    "generator": "raise GeneratorExit\n",
    "recursion": "def f():\n    f()\nf()\n",
    "prints": "print('\\x1b[31mred')\n",
    "nulls": "x = 1\0\n",
    "syntax": "def\n",
    "import": "import nowhere.at.all\n",
    "memory": "x = bytearray(1 << 62)\n",
    "stop": "raise StopIteration\n",
    "base": "class Own(BaseException):\n    pass\nraise Own('a\\nb')\n",
    "wrong": "from semilearn_ext.extend import register\nregister(3)\n",
}


def commands(folder: Path) -> dict[str, list[str]]:
    """Every command with its required arguments, so that only the option under test is unusual."""
    runs = folder / "runs"
    for plugins in ([], ["upcsc"]):
        for target in domains("digits_mini"):
            run = write_run(runs, 80, target_domain=target, plugins=plugins)
    own = folder / "own"
    write_images(own, [f"{domain}/{label}" for domain in ("ink", "oil", "pen") for label in "ab"], count=4)
    digits = ["--c", "fixmatch_digits_mini.yaml"]
    data = ["folder", "--data_dir", str(own)]
    return {
        "train": ["train", *digits, "--dry_run", "--cache_dir", str(folder / "cache")],
        "sweep": ["sweep", *digits, "--dry_run"],
        "select": ["select", *digits, "--dry_run", "--grid", "lr=0.1,0.2", "--dev_seeds", "11"],
        "reproduce": ["reproduce", "digits_mini", "--dry_run"],
        "records": ["records", str(runs), "--out", str(folder / "record")],
        "tables": ["tables", str(runs), "--out", str(folder / "out")],
        "claims": ["claims", str(runs), "--out", str(folder / "claims.md")],
        "analyse observation": ["analyse", "observation", str(run)],
        "analyse curves": ["analyse", "curves", str(runs), "--out", str(folder / "out")],
        "analyse gains": ["analyse", "gains", str(runs), "--out", str(folder / "out")],
        "analyse confusion": ["analyse", "confusion", str(run), "--out", str(folder / "out")],
        "analyse reliability": ["analyse", "reliability", str(run), "--out", str(folder / "out")],
        "analyse tsne": ["analyse", "tsne", "--run", str(run), "--out", str(folder / "out")],
        "analyse landscape": ["analyse", "landscape", "--run", str(run), "--out", str(folder / "out")],
        "predict": ["predict", str(own), "--run", str(run)],
        "data check": ["data", "check", *data],
        "data show": ["data", "show", *data, "--out", str(folder / "a.png"), "--size", "16"],
        "data split": ["data", "split", *data, "--labels", "1", "--out", str(folder / "splits")],
        "list": ["list"],
        "bench step": ["bench", "step", "--steps", "1"],
        "doctor": ["doctor", "--methods", "none"],
        "job": ["job", str(run)],
    }


def cases(folder: Path) -> Iterator[Case]:
    places = special_places(folder / "places")
    for name, words in commands(folder).items():
        options, positionals = _values_of(name)
        for option in options:
            for value in (*TEXTS, *places):
                if name == "data show" and option == "--data_dir" and value in ("", " ", "..", "~"):
                    continue  # the content of these folders is unknown
                if option == "--cache_dir" and not value.endswith(("fifo", "loop", "dangling")):
                    continue  # digits_mini would be generated again in each of them
                if name in ("doctor", "bench step") and option not in ("--methods", "--set", "--c", "--floor"):
                    continue  # they would run a benchmark each time
                yield Case(f"{name} {option} {_short(value, folder)}", [*words, f"{option}={value}"])
        for value in (*TEXTS, *places) if positionals else ():
            kept = words[: len(name.split())]
            rest = words[len(kept) + 1 :] if name not in ("analyse tsne", "analyse landscape") else words[len(kept) :]
            yield Case(f"{name} {_short(value, folder)}", [*kept, value, *rest])


def _short(value: str, folder: Path) -> str:
    return repr(value.replace(str(folder), "")[:30])


def _values_of(name: str) -> tuple[list[str], bool]:
    """The options of a command that take a value, and whether it has positional arguments."""
    command: argparse.ArgumentParser = parser()
    for word in name.split():
        action = next(a for a in command._actions if isinstance(a, argparse._SubParsersAction))
        choices: Any = action.choices
        command = choices[word]
    options = [
        action.option_strings[-1]
        for action in command._actions
        if action.option_strings
        and action.nargs != 0
        and action.dest not in _LEFT_OUT
        # Settings are the same for all commands, and inputs.py has the numbers and choices among them.
        and (not _is_setting(action.dest) or (name == "train" and TYPES.get(action.dest) in _WORDS))
    ]
    positional = any(not a.option_strings and not isinstance(a, argparse._SubParsersAction) for a in command._actions)
    return options, positional


def _is_setting(name: str) -> bool:
    return name in KEYS or bool(registry.owners_of(name))


def problem(outcome: Outcome) -> str:
    if outcome.crashed:
        return "tracebacks"
    if outcome.code not in (0, 2, 75, 130):
        return "accepted"
    errors = [line for line in outcome.errors.splitlines() if line.startswith("error: ")]
    if (outcome.code == 2) != (len(errors) == 1):
        return "unreadable"
    printed = (outcome.output + outcome.errors).replace("\n", "").replace("\t", "").replace("\r", "")
    return "" if printed.isprintable() and all(len(line) < 2100 for line in errors) else "unreadable"


def run(folder: Path, count: int | None = None, seed: int = 0) -> Counter[str]:
    """All cases, or ``count`` of them."""
    chosen = list(cases(folder))
    if count is not None and count < len(chosen):
        chosen = random.Random(seed).sample(chosen, count)
    counts = Counter[str](options=0, tracebacks=0, accepted=0, unreadable=0)
    (folder / "here").mkdir()
    for case in chosen:
        outcome = call(case.words, folder / "here")
        counts["options"] += 1
        wrong = problem(outcome)
        if wrong:
            counts[wrong] += 1
            print(f"{wrong}: {case.name}: exit code {outcome.code}: {outcome.errors[-500:]!r}", flush=True)
    return counts
