"""The README's commands for the paper's method run, one after the other, as they are written.

Three things are replaced: the download by a parquet file of the Hub's schema, the GPUs by the CPU, and the settings by
tiny ones. ``.ci/run`` runs the README's other commands.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from semilearn_ext import registry
from semilearn_ext.data.benchmarks.pacs import PACS
from tests.conftest import ROOT
from tests.data.test_hub import write_parquet
from tests.forked import Forked

IMAGES_PER_CLASS = 3
SMALL = {"net": "cnn", "img_size": 16, "pretrained": "false", "labels_per_class": 1, "batch_size": 6, "average": "none"}
BRIEF = {"num_train_iter": 1, "num_eval_iter": 1, "device": "cpu", "cache_dir": "cache", "num_workers": 0}
TINY = [word for name, value in {**SMALL, **BRIEF}.items() for word in (f"--{name}", str(value))]


def commands() -> list[str]:
    """The commands under 'The paper's method on a GPU', without the installation."""
    section = (ROOT / "README.md").read_text().split("## The paper's method on a GPU")[1]
    block = re.findall(r"^```sh\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)[0]
    lines = [line.partition(" # ")[0].strip() for line in block.splitlines()]
    assert lines[0].startswith("pip install")
    return lines[1:]


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A Hub with a small PACS; the list contains the requested repositories."""
    huggingface_hub = pytest.importorskip("huggingface_hub")
    (tmp_path / "hub" / "data").mkdir(parents=True)
    write_parquet(tmp_path / "hub" / "data" / "train.parquet", per_class=IMAGES_PER_CLASS)
    requested: list[str] = []

    def snapshot_download(repository: str, **_: object) -> str:
        requested.append(repository)
        return str(tmp_path / "hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    counts = dict.fromkeys(PACS.domains, 7 * IMAGES_PER_CLASS)
    monkeypatch.setitem(registry.DATASETS._specs, "pacs", replace(PACS, counts=counts))
    return requested


def test_the_papers_method_runs_from_the_download_to_the_tables(
    hub: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from semilearn_ext.__main__ import main

    outputs: dict[str, str] = {}
    monkeypatch.chdir(tmp_path)
    for command in commands():
        program, name, *words = shlex.split(command)
        assert program == "ssdg"
        if name in ("train", "sweep"):
            words = [*words, *TINY]
            if "--seeds" in words:
                words[words.index("--seeds") + 1] = "1,2"
            process = Forked(name, *words, cwd=tmp_path)
            outputs[command], errors = process.communicate()
            assert process.returncode == 0, errors
        else:
            main([name, *words])
            outputs[command] = capsys.readouterr().out
    prepared, planned, trained, swept, tabled = outputs.values()
    assert hub == ["flwrlabs/pacs"]
    assert "84 images in data/pacs" in prepared
    assert "nothing" not in planned
    assert "FixMatch + UPCSC" in planned
    first_words = [line.split()[0] for line in trained.splitlines() if line]
    assert [word for word in first_words if word in (*PACS.domains, "mean")] == [*PACS.domains, "mean"]
    # Four of them are the runs of the previous command.
    assert swept.endswith("16 runs: 16 done\nThe runs are in runs\nWrite tables with: ssdg tables runs\n")
    assert "16 runs: 4 done, 12 pending; 12 to run" in swept
    results = [json.loads(path.read_text()) for path in Path("runs").rglob("result.json")]
    assert {(result["title"], result["seed"]) for result in results} == {
        (title, seed) for title in ("FixMatch", "FixMatch + UPCSC") for seed in (1, 2)
    }
    assert "Wrote results/tables.md" in tabled
    assert "FixMatch + UPCSC" in Path("results", "tables.md").read_text()
