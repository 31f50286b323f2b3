"""Packaged configs are found by name from any folder, in a checkout and in a built package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semilearn_ext.__main__ import console
from semilearn_ext.errors import UserError
from semilearn_ext.settings.config_files import config_names, find_config
from tests.conftest import ROOT

CONFIG = ROOT / "config" / "ssdg"


def test_an_existing_path_takes_precedence_over_a_packaged_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("pacs.yaml") == CONFIG / "pacs.yaml"
    assert find_config("ablation/fixmatch_sc_pacs.yaml") == CONFIG / "ablation" / "fixmatch_sc_pacs.yaml"
    Path("pacs.yaml").touch()
    assert find_config("pacs.yaml") == Path("pacs.yaml")
    assert find_config(tmp_path / "pacs.yaml") == tmp_path / "pacs.yaml"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("fixmatch_upcs_pacs.yaml", "fixmatch_upcsc_pacs.yaml"),
        ("ablation/fixmatch_scc_pacs.yaml", "ablation/fixmatch_sc_pacs.yaml"),
        ("mine/frist.yaml", "mine/first.yaml"),
    ],
)
def test_an_unknown_config_suggests_the_nearest_name(
    name: str, nearest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").mkdir()
    Path("mine/first.yaml").touch()
    with pytest.raises(UserError) as raised:
        find_config(name)
    assert str(raised.value) == (
        f"{name}: no such config file; did you mean '{nearest}'? (packaged configs: ssdg list configs)"
    )


def test_all_packaged_configs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert console(["list", "configs"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names == config_names()
    assert {CONFIG / name for name in names} == set(CONFIG.rglob("*.yaml"))
    assert console(["list"]) == 0
    assert f"{len(names)} packaged files for --c (list them with: ssdg list configs)" in capsys.readouterr().out


def test_a_built_package_contains_the_configs(tmp_path: Path) -> None:
    built = tmp_path / "built"
    build = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(built)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    sources = {path.relative_to(CONFIG) for path in CONFIG.rglob("*.yaml")}
    packaged = built / "semilearn_ext" / "config" / "ssdg"
    assert {path.relative_to(packaged) for path in packaged.rglob("*.yaml")} == sources
    command = [sys.executable, "-m", "semilearn_ext", "sweep", "--c", "fixmatch_upcsc_pacs.yaml", "--dry_run"]
    planned = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(built)}, check=True, capture_output=True, text=True
    )
    assert planned.stdout.endswith("4 to run\n")
