"""Code, help, messages and docs are written in plain English, in one spelling, and local names say what they hold."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

COUNTED = "labels?|images?|seconds?|runs?|steps?|lines?|files?|rows?|processes|twice|once|epochs?|batches"
UNITS = "class|run|step|target|epoch|seed|domain|image|second|core|evaluation|batch|view|config|module|process|GPU"
DIALECT = {
    rf"\b({COUNTED}) an? ({UNITS})\b(?! (was|is|has|can|that))": "use 'per'",
    r"\bgoes on\b": "use 'continues' or 'resumes'",
    r"\bwhat was (said|made|found)\b": "name it",
    r"\banew\b": "use 'again'",
    r"\bLight: no torch\b": "use 'Does not import torch'",
    r"\bof one's own\b": "use 'your own' or 'a user's own'",
    r"\bgot a (int|object|str|array|NoneType)\b": "a type has no article",
    r"(?<!-)\b(labeled|unlabeled) (images?|data|loss|view)\b": "British spelling, as in the rest",
    r"\b(minim|organ|recogn|regular|summar)iz(e|es|ed|ing|ation)\b": "British: -ise",
    r"\b(behavior|neighbors?|analyze[sd]?|gray)\b": "British: behaviour, neighbour, analyse, grey",
    r"\bconfident of\b": "use 'confident about'",
    r"\b(equal|the same) to (1e-\d+|rounding)\b": "use 'up to'",
    r"\b(takes no|cannot take) plug-ins\b": "use 'does not support'",
}
VAGUE = {
    "made",
    "found",
    "one",
    "said",
    "there",
    "mine",
    "ours",
    "theirs",
    "twice",
    "whole",
    "same",
    "some",
    "everything",
}


def texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
    if listed == [""]:
        pytest.skip("not a checkout")
    written = [name for name in listed if name.endswith((".py", ".md", ".yaml")) and not name.startswith("results/")]
    return [ROOT / name for name in written if (ROOT / name) != Path(__file__) and (ROOT / name).is_file()]


@pytest.mark.parametrize(("pattern", "advice"), DIALECT.items(), ids=DIALECT.values())
def test_plain_english(pattern: str, advice: str) -> None:
    wrong = re.compile(pattern)
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if wrong.search(line)
    ]
    assert not hits, advice


def test_local_names_say_what_they_hold() -> None:
    vague = []
    for path in sorted([*(ROOT / "semilearn_ext").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_stored else node.arg if isinstance(node, ast.arg) else ""
            if name in VAGUE:
                vague.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not vague
