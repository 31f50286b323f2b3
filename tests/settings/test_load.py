"""Defaults, YAML files and command line; errors are one line that names the file, the key and the nearest valid one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from semilearn_ext.__main__ import parser
from semilearn_ext.commands.train import settings_of
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings, config_hash, dump, load_settings, read_resolved, settings_from, with_values
from semilearn_ext.settings.load import load_base_settings

CONFIG = Path(__file__).parents[2] / "config" / "ssdg"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def parse(arguments: list[str]) -> Settings:
    return settings_of(parser().parse_args(["train", *arguments]))


def test_the_command_line_overrides_yaml_and_yaml_overrides_defaults(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml", "seed: 7\nlr: 5e-4\n")
    settings = parse(["--c", str(file), "--seed", "3"])
    assert (settings.seed, settings.lr, settings.momentum) == (3, 5e-4, Settings.momentum)


def test_a_config_extends_others_and_later_values_win(tmp_path: Path) -> None:
    write(tmp_path / "data.yaml", "labels_per_class: 5\nseed: 2\n")
    write(tmp_path / "long.yaml", "base: data.yaml\nepoch: 3\nseed: 4\n")
    file = write(tmp_path / "top.yaml", "base: [data.yaml, long.yaml]\nepoch: 9\n")
    settings = load_settings(file, {})
    assert (settings.labels_per_class, settings.seed, settings.epoch) == (5, 4, 9)
    assert settings.where("seed") == f"{tmp_path / 'long.yaml'}: seed"


def test_configs_that_extend_each_other_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "base: b.yaml\n")
    write(tmp_path / "b.yaml", "base: a.yaml\n")
    with pytest.raises(UserError, match="circle"):
        load_settings(tmp_path / "a.yaml", {})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("labels_per_clas: 5", "labels_per_clas: no such setting; did you mean 'labels_per_class'?"),
        ("seed: many", "seed: expected an integer, got 'many'"),
        ("epoch: 2.5", "epoch: expected an integer, got 2.5"),
        ("compile: maybe", "compile: expected true or false, got 'maybe'"),
        ("lr: .nan", "lr: expected a number, got nan"),
        ("epoch: 0", "epoch: must be at least 1, got 0"),
        ("average_decay: 1", "average_decay: must be below 1, got 1.0"),
        ("average_decay: -0.1", "average_decay: must be at least 0, got -0.1"),
        ("average_start: 1.5", "average_start: must be below 1, got 1.5"),
        ("average: both_of", "average: 'both_of' is not one of both, ema, swa, none"),
        ("optim: Adam", "optim: 'Adam' is not one of SGD, AdamW; did you mean 'AdamW'?"),
        ("algorithm: fixmach", "algorithm: 'fixmach' is not a known algorithm; did you mean 'fixmatch'?"),
        ("algorithm: crmatch", "algorithm: USB's crmatch is not available: "),
        ("ema_p: 0.9", "ema_p: not an option of fixmatch; it belongs to adamatch, freematch, softmatch"),
        ("p_cutoff: high", "p_cutoff: expected a number, got 'high'"),
        ("- a\n- b", "expected lines of 'key: value', got list"),
        ("seed: [1", "not valid YAML"),
        ("base: nowhere.yaml", "nowhere.yaml: no such config file"),
    ],
)
def test_an_error_in_a_file_is_one_line_with_its_name(tmp_path: Path, text: str, expected: str) -> None:
    file = write(tmp_path / "mine.yaml", text + "\n")
    with pytest.raises(UserError) as error:
        load_settings(file, {})
    message = str(error.value)
    assert expected in message
    assert str(tmp_path) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--sede", "3"], "command line: --sede: no such setting; did you mean 'seed'?"),
        (["--seed", "x"], "command line: --seed: expected an integer"),
        (["--seed"], "command line: argument --seed: expected one argument"),
        (["pacs"], "unexpected argument 'pacs'"),
    ],
)
def test_an_error_on_the_command_line_names_the_option(arguments: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        parse(arguments)


def test_a_flag_without_a_value_is_true() -> None:
    assert parse(["--overwrite", "--compile", "false"]).overwrite is True


def test_options_have_the_algorithms_own_defaults() -> None:
    assert dict(settings_from(algorithm="uda").options) == {"tsa_schedule": "none", "T": 0.4, "p_cutoff": 0.8}
    assert settings_from(algorithm="fixmatch", p_cutoff=0.9).options["p_cutoff"] == 0.9


def test_resolved_settings_can_be_written_and_read(tmp_path: Path) -> None:
    settings = settings_from(algorithm="freematch", lr_classifier=0.01, source_domains="pen,print", ema_p=0.99)
    file = write(tmp_path / "config.yaml", dump(settings))
    assert read_resolved(file) == settings


def test_the_hash_depends_only_on_scientific_settings(tmp_path: Path) -> None:
    settings = settings_from(labels_per_class=5)
    irrelevant = [("seed", 9), ("target_domain", "pen"), ("device", "cpu"), ("save_dir", "x"), ("num_workers", 4)]
    relevant = [("lr", 0.1), ("labels_per_class", 10), ("epoch", 3), ("algorithm", "uda"), ("p_cutoff", 0.5)]
    for name, value in irrelevant:
        assert config_hash(with_values(settings, **{name: value})) == config_hash(settings), name
    for name, value in relevant:
        assert config_hash(settings_from(**{"labels_per_class": 5, name: value})) != config_hash(settings), name


def test_the_hash_depends_on_the_content_of_weights_and_not_on_their_path(tmp_path: Path) -> None:
    def hash_with(name: str, content: bytes) -> str:
        (tmp_path / name).write_bytes(content)
        return config_hash(settings_from(pretrained=True, pretrain_path=str(tmp_path / name)))

    assert hash_with("a.pth", b"one") == hash_with("b.pth", b"one") != hash_with("c.pth", b"two")


@pytest.mark.parametrize("file", sorted(CONFIG.rglob("*.yaml")), ids=lambda path: path.name)
def test_every_packaged_config_is_valid(file: Path) -> None:
    assert load_settings(file, {}).target_domain == "all"


def test_settings_import_neither_torch_nor_usb() -> None:
    code = (
        "import sys, semilearn_ext.settings.command_line, semilearn_ext.runs.folder, semilearn_ext.report.summary; "
        "print(sorted({'torch', 'semilearn'} & set(sys.modules)))"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


def test_sections_apply_to_matching_methods(tmp_path: Path) -> None:
    """A section overrides plain keys of its own and included files; later files and options override it."""
    write(
        tmp_path / "step.yaml",
        "lr: 1\nmethods:\n  '*_upcsc': {lr: 2, loss_form: reference}\n  erm: {step: reference}\n",
    )
    write(tmp_path / "data.yaml", "base: step.yaml\nseed: 3\n")
    top = write(tmp_path / "top.yaml", "base: data.yaml\nalgorithm: fixmatch_upcsc\nlr: 4\n")
    assert load_settings(tmp_path / "data.yaml", {}).lr == 1
    section = load_settings(tmp_path / "data.yaml", {"algorithm": "fixmatch_upcsc"})
    assert (section.lr, section.options["loss_form"]) == (2, "reference")
    assert section.where("lr") == f"{tmp_path / 'step.yaml'}: lr"
    assert load_settings(top, {}).lr == 4
    assert load_settings(top, {"lr": 5}).lr == 5
    assert load_settings(tmp_path / "data.yaml", {"algorithm": "erm"}).step == "reference"
    bad = write(tmp_path / "bad.yaml", "methods: [a]\n")
    with pytest.raises(UserError, match=r"bad.yaml: methods: expected settings by algorithm"):
        load_settings(bad, {})


def test_settings_of_the_base_of_a_method(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.yaml", "algorithm: fixmatch_upcsc\nsurrogate: top1\nvariant: x\nseed: 2\np_cutoff: 0.9\n"
    )
    base = load_base_settings(file, {"upc_weight": "0.5", "epoch": "3"})
    assert (base.method, base.seed, base.epoch, base.options["p_cutoff"]) == ("fixmatch", 2, 3, 0.9)
