"""The workflows of continuous integration: every step is a command that this version supports."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from semilearn_ext.__main__ import parser
from semilearn_ext.registry import NETS
from semilearn_ext.settings import load_settings
from tests.conftest import ROOT

WORKFLOWS = ROOT / ".github" / "workflows"
FILES = sorted(WORKFLOWS.glob("*.yml"))


def jobs(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(file.read_text())["jobs"]
    return content


def commands(file: Path) -> list[list[str]]:
    """The words of every command of every step."""
    scripts = [step["run"] for job in jobs(file).values() for step in job["steps"] if "run" in step]
    lines = [line for script in scripts for line in script.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_steps_name_commands_and_tests_that_exist(file: Path) -> None:
    understood = 0
    for words in commands(file):
        if "pytest" in words:
            assert all((ROOT / path).exists() for path in words[words.index("pytest") + 1 :]), words
        start = {"ssdg", "semilearn_ext"} & set(words)
        if start:
            parser().parse_args(words[words.index(start.pop()) + 1 :])
        understood += bool(start) or "pytest" in words or ".ci/run" in words
    assert understood


def test_the_benchmarks_need_no_download() -> None:
    """A runner has the embedded weights, but not those of ImageNet."""
    measured = [words for words in commands(WORKFLOWS / "gpu.yml") if words[:2] == ["ssdg", "bench"]]
    assert len(measured) == 3
    for words in measured:
        arguments = parser().parse_args(words[1:])
        settings = load_settings(arguments.c, dict(arguments.set))
        assert not settings.pretrained or "embedded" in NETS.get(settings.net, "net").weights
        assert settings.device == "cuda"


def test_untrusted_code_does_not_run_on_the_gpu_machine() -> None:
    (job,) = jobs(WORKFLOWS / "gpu.yml").values()
    assert job["runs-on"] == ["self-hosted", "gpu"]
    assert "head.repo.full_name == github.repository" in job["if"]
    assert "contains(github.event.pull_request.labels.*.name, 'gpu')" in job["if"]
    triggers = yaml.safe_load((WORKFLOWS / "gpu.yml").read_text())[True]  # YAML reads 'on' as true
    assert set(triggers) == {"schedule", "workflow_dispatch", "pull_request"}
