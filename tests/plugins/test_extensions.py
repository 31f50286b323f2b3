"""Files passed with --extend: all are loaded, their content is part of the experiment, and their state is saved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from semilearn_ext import registry, training
from semilearn_ext.__main__ import main
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.base import ModelSpec, Plugin
from semilearn_ext.settings import Settings, config_hash
from tests.conftest import FinalStates

Tiny = Callable[..., Settings]
PLUGIN = """
import torch
from semilearn_ext.extend import Option, Plugin, PluginSpec, register

SPEC = PluginSpec(
    name="{name}", title="{name}", about="for a test", options={{"{name}_weight": Option({weight}, "weight")}}
)

@register(SPEC)
class Mine(Plugin):
    def __init__(self, options, model):
        super().__init__(options, model)
        self.scale = torch.nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.zeros(model.num_features))
        self.queue = torch.zeros(3)
        self.steps = 0
        self.history = []

    def losses(self, step):
        features = step.unlabelled[0].features
        self.mean.lerp_(features.detach().mean(0), 0.5)
        self.queue = torch.cat([self.queue[1:], features.detach().mean()[None]])
        self.steps += 1
        self.history = [*self.history, self.steps]
        loss = self.scale * (features - self.mean).pow(2).mean() * (1 + self.queue.sum() + len(self.history))
        return {{"{name}": (self.options["{name}_weight"], loss)}}
"""

BARE = """
import torch
from semilearn_ext.extend import Plugin, PluginSpec, Wants, register
from semilearn_ext.nets.modulated_classifier import ModulatedClassifier

@register(PluginSpec(name="mine", title="Mine", about="for a test"))
class Mine(Plugin):
    BODY
"""
LOSS = "def losses(self, step): return {}"
TWO_NETS = """
from semilearn_ext.extend import NetSpec
@register(NetSpec(name="one", title="One", about=""))
def first(settings):
    return None
@register(NetSpec(name="two", title="Two", about=""))
def second(settings):
    return None
"""
ALGORITHM = """
from semilearn_ext.extend import AlgorithmSpec, register
from semilearn_ext.registry import ALGORITHMS
from semilearn_ext.semilearn_api import FixMatch

@register(AlgorithmSpec(name="mymatch", title="MyMatch", about="", options=ALGORITHMS.get("fixmatch", "").options))
class MyMatch(FixMatch):
    number = NUMBER
"""
ALL_KINDS = """
import torch
from semilearn.algorithms.fixmatch.fixmatch import FixMatch
from torch import nn
from semilearn_ext.extend import (
    AlgorithmSpec, DatasetSpec, Item, Loaded, NetSpec, Option, Plugin, PluginSpec, register
)

@register(DatasetSpec(name="flat", title="Flat", about="one colour per class", domains=("a", "b", "c"), num_classes=2))
def load(spec, settings):
    items = [Item(f"{d}/{c}/{n}", c, d, f"{d}/{c}/{n}") for d in spec.domains for c in range(2) for n in range(12)]
    colours = torch.tensor([[60 + 100 * item.label + 2 * n % 20 for _ in range(3)] for n, item in enumerate(items)])
    return Loaded(colours.to(torch.uint8)[:, :, None, None].expand(-1, 3, 8, 8).contiguous(), items, ("dark", "light"))

class Net(nn.Module):
    num_features = 4
    def __init__(self, num_classes):
        super().__init__()
        self.body, self.classifier = nn.Linear(3, 4), nn.Linear(4, num_classes)
    def forward(self, x, only_fc=False, only_feat=False, **_):
        if only_fc:
            return self.classifier(x)
        feat = self.body(x.mean((2, 3))).tanh()
        return feat if only_feat else {"logits": self.classifier(feat), "feat": feat}

@register(NetSpec(name="meannet", title="MeanNet", about="the mean colour"))
def build(settings):
    return lambda num_classes, **_: Net(num_classes)

@register(AlgorithmSpec(name="halfmatch", title="HalfMatch", about="FixMatch with half the loss", options={
    "hard_label": Option(True, "hard labels"), "T": Option(0.5, "T"), "p_cutoff": Option(0.5, "threshold")}))
class HalfMatch(FixMatch):
    def train_step(self, x_lb, y_lb, x_ulb_w, x_ulb_s):
        out, log = super().train_step(x_lb, y_lb, x_ulb_w, x_ulb_s)
        return {**out, "loss": out["loss"] / 2}, log

@register(PluginSpec(name="small", title="Small", about="small logits", options={
    "small_weight": Option(0.1, "weight")}))
class Small(Plugin):
    def losses(self, step):
        return {"small": (self.options["small_weight"], step.labelled.logits.pow(2).mean())}
"""


@pytest.fixture(autouse=True)
def remove_extensions(tmp_path: Path) -> Iterator[None]:
    yield
    for path in tmp_path.rglob("*.py"):
        registry.remove(str(path.resolve()))


def write(path: Path, name: str, weight: float = 0.01) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(PLUGIN.format(name=name, weight=weight))
    return str(path)


def test_a_plugins_tensors_and_numbers_resume_bit_for_bit(
    tiny: Tiny, final_states: FinalStates, tmp_path: Path
) -> None:
    """Parameter, buffer, plain tensor, number and list, without any code in the plug-in."""
    values = {"algorithm": "fixmatch_mine", "extend": write(tmp_path / "mine.py", "mine"), "num_train_iter": 6}
    expected, actual = final_states(tiny, 3, **values)
    extra = expected.pop("plugins.mine._extra_state")
    assert extra["steps"] == 6
    assert extra["history"] == [1, 2, 3, 4, 5, 6]
    resumed = actual.pop("plugins.mine._extra_state")
    assert torch.equal(extra.pop("queue"), resumed.pop("queue"))
    assert extra == resumed
    assert all(torch.equal(expected[key], actual[key]) for key in expected)
    assert float(expected["plugins.mine.scale"]) != 1


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("object()", "object"),
        ("__import__('numpy').mean([1.0])", "float64"),
        ("__import__('collections').Counter()", "Counter"),
        ("{1: __import__('random').Random(0)}", "Random"),
    ],
)
def test_state_that_cannot_be_saved_is_an_error_before_training(
    value: str, expected: str, tiny: Tiny, tmp_path: Path
) -> None:
    """A checkpoint with such an object could not be read, and a dict would silently replace a Counter."""
    path = Path(write(tmp_path / "mine.py", "mine"))
    path.write_text(path.read_text().replace("self.history = []", f"self.history = []; self.other = {value}"))
    with pytest.raises(UserError, match=rf"Mine.other: type {expected} cannot be saved"):
        training.build(make_context(tiny(algorithm="fixmatch_mine", extend=str(path))))


def test_tensors_of_a_plugin_without_parameters_return_to_the_device_of_the_model() -> None:
    """Also inside lists and dicts. A checkpoint is always loaded on the CPU."""
    plugin = Plugin({}, ModelSpec(4, 3, 2)).to("meta")
    plugin.set_extra_state({"queue": torch.ones(2), "parts": {"a": [torch.ones(1), (torch.ones(1), 2)]}, "steps": 3})
    devices = {
        plugin.queue.device.type,
        *(part.device.type for part in (plugin.parts["a"][0], plugin.parts["a"][1][0])),
    }
    assert devices == {"meta"}
    assert plugin.steps == 3


def test_an_edited_plugin_is_another_experiment(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    values = {"algorithm": "fixmatch_mine", "extend": write(path, "mine")}
    first = tiny(**values)
    before, outcome = config_hash(first), training.run(first)
    assert not outcome.was_finished
    assert training.run(tiny(**values)).was_finished
    write(path, "mine", weight=0.5)
    edited = tiny(**values)
    assert edited.options["mine_weight"] == 0.5
    assert config_hash(edited) != before
    with pytest.raises(UserError, match="different config"):
        training.run(edited)


def test_two_files_with_the_same_name_are_both_loaded(tiny: Tiny, tmp_path: Path) -> None:
    files = [write(tmp_path / "a" / "mine.py", "one"), write(tmp_path / "b" / "mine.py", "two")]
    settings = tiny(algorithm="fixmatch_one_two", extend=",".join(files), one_weight=0.1, two_weight=0.2)
    assert settings.plugins == ("one", "two")
    result = training.run(settings).result
    assert result["plugins"] == ["one", "two"]


def test_two_files_that_declare_the_same_name_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    files = [write(tmp_path / "a.py", "mine"), write(tmp_path / "b.py", "mine")]
    with pytest.raises(
        UserError, match=r"b.py: plug-in 'mine' is already defined in .*a.py|b.py: option 'mine_weight'"
    ):
        tiny(algorithm="fixmatch_mine", extend=",".join(files))


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("None", "plug-in 'mine': losses must return a dict of .* got None"),
        ("features.mean()", "plug-in 'mine': losses must return a dict"),
        ('{"mine": features.mean()}', r"loss 'mine' must be a pair \(weight, scalar tensor\)"),
        ('{"mine": (1.0, features.mean(1))}', r"loss 'mine' must be .* got a tensor of shape \(6,\)"),
        ('{"sup_loss": (1.0, features.mean())}', "another logged number is already called 'sup_loss'"),
        ('{"mine": (features.mean(), features.mean())}', "the weight of loss 'mine' must be a number, got tensor"),
        ('{"a": (1.0, features.mean()), "a_weight": (1.0, features.mean())}', "'a_weight' is the name of a weight"),
        ("self.logs.update(sup_loss=features.mean()) or {}", "another logged number is already called 'sup_loss'"),
        ("self.logs.update(rows=features.mean(1)) or {}", r"logs\['rows'\] must be a scalar, got a tensor of shape"),
    ],
)
def test_losses_of_a_wrong_form_are_an_error_in_one_line(
    returned: str, expected: str, tiny: Tiny, tmp_path: Path
) -> None:
    path = Path(write(tmp_path / "mine.py", "mine"))
    code, _, _ = path.read_text().partition("        self.mean.lerp_")
    path.write_text(f"{code}        return {returned}\n")
    with pytest.raises(UserError, match=expected):
        training.run(tiny(algorithm="fixmatch_mine", extend=str(path)))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 1", "mine.py: does not declare a plug-in, algorithm, dataset or network; add @register"),
        ("import helper\n" + PLUGIN, "mine.py: imports the local module 'helper', whose content would not be part of"),
        ("import helper\n1 / 0", "ZeroDivisionError"),
        (PLUGIN.replace("@register(SPEC)", "@register('mine')"), "register needs a spec, .* got 'mine'"),
        (PLUGIN.replace("class Mine(Plugin)", "class Mine"), r"plug-in 'mine': .*:Mine is not a subclass of Plugin"),
        (PLUGIN.replace("(self, options, model)", "(self)"), r"Mine.__init__ must take the arguments \(self, options"),
        (PLUGIN.replace('name="{name}"', 'name="float"'), "plug-in 'float': torch uses this name itself"),
        ("import math\n\nmath.sqrt(-1)\n", r"mine.py:3: ValueError: math domain error"),
        (PLUGIN + "register(SPEC)(lambda: None)", "'mine': register a class or function at the top level"),
        (
            PLUGIN + TWO_NETS.replace("def second", "def build").replace("def first", "def build"),
            "'one' and 'two' are both implemented by 'build'",
        ),
    ],
)
def test_an_extension_with_a_mistake_is_an_error_of_one_line(
    code: str, expected: str, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "helper.py").write_text("x = 1")
    path = tmp_path / "mine.py"
    path.write_text(code.format(name="mine", weight=0.1))
    name = "float" if "float" in code else "mine"
    for _ in range(2):  # a failed attempt leaves nothing behind
        with pytest.raises(UserError, match=expected):
            training.build(make_context(tiny(algorithm=f"fixmatch_{name}", extend=str(path))))
    assert "helper" not in sys.modules


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("...", "Mine has no method 'losses'; add it, or set wants = None"),
        (f"wants = 'weak'\n    {LOSS}", r"Mine.wants must be a Wants\(...\), or None .* got 'weak'"),
        (
            f"wants = Wants(views='week')\n    {LOSS}",
            r"mine.py:8: Wants: views: 'week' is not one of all, weak, strong",
        ),
        (f"wants = Wants(batch='one')\n    {LOSS}", "Wants: batch: 'one' is not one of mixed, domain"),
        (f"def __init__(self, options, model): ...\n    {LOSS}", r"Mine.__init__ must call super\(\).__init__"),
        (
            f"def head(self): return torch.nn.Linear(2, 2)\n    {LOSS}",
            r"head\(\) must return a ClassifierHead or None, got Linear",
        ),
        (
            f"def head(self): return ModulatedClassifier(64, 2)\n    {LOSS}",
            r"head\(\) replaces the classifier, which its spec must declare; add needs=Needs\(head=True\)",
        ),
    ],
)
def test_a_plugin_with_a_mistake_is_an_error_before_training(
    body: str, expected: str, tiny: Tiny, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BARE.replace("BODY", body))
    with pytest.raises(UserError, match=expected):
        training.build(make_context(tiny(algorithm="fixmatch_mine", extend=str(path))))


def test_labelled_images_in_mixed_batches_are_refused_in_the_reference_step(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(BARE.replace("BODY", f"wants = Wants(labelled=True)\n    {LOSS}"))
    values = {"algorithm": "fixmatch_mine", "extend": str(path)}
    training.build(make_context(tiny(**values, step="usb")))
    with pytest.raises(UserError, match="labelled images in mixed batches only works in USB's step; use step: usb"):
        training.build(make_context(tiny(**values, step="reference")))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("class MyMatch: ...", ":MyMatch is not a subclass of USB's AlgorithmBase"),
        ("def MyMatch(args): ...", ":MyMatch is not a subclass of USB's AlgorithmBase"),
        ("class MyMatch(FixMatch.__mro__[1]): ...", "MyMatch has no train_step"),
        (
            "class MyMatch(FixMatch):\n    def train_step(self, x_lb, y_lb, x_ulb): ...",
            "'x_ulb' is not an entry of the",
        ),
        (
            "class MyMatch(FixMatch):\n    def train_step(self, x_lb, y_lb): ...",
            "takes no unlabelled images; derive MyMatch from USB's Supervised",
        ),
    ],
)
def test_a_class_that_cannot_be_an_algorithm_is_refused(code: str, expected: str, tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(ALGORITHM.replace("class MyMatch(FixMatch):\n    number = NUMBER", code))
    with pytest.raises(UserError, match=f"algorithm 'mymatch': .*{expected}"):
        training.build(make_context(tiny(algorithm="mymatch", extend=str(path))))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("return lambda num_classes, **_: Net(num_classes)", "return None", "its function must return another one"),
        ("return lambda num_classes, **_: Net(num_classes)", "return Net(2)", "its function must return another one"),
        ("Net(num_classes)\n\n", "3\n\n", "its builder must return an nn.Module, got 3"),
    ],
)
def test_a_function_that_builds_no_network_is_refused(
    old: str, new: str, expected: str, tiny: Tiny, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    assert old in ALL_KINDS
    path.write_text(ALL_KINDS.replace(old, new))
    with pytest.raises(UserError, match=f"network 'meannet': {expected}"):
        training.build(make_context(tiny(net="meannet", extend=str(path), pretrained=False)))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("    return Loaded(", "    return tuple, (", "its function must return Loaded"),
        (
            "colours.to(torch.uint8)",
            "colours",
            r"must be a uint8 tensor \(N, 3, H, W\), got torch.int64 \(72, 3, 8, 8\)",
        ),
        ('("dark", "light")', '("dark", "light", "other")', "has 3 classes, but its spec declares 2"),
        (", items, (", ", items[1:], (", "has 72 images, but 71 items"),
        ('[Item(f"{d}/{c}/{n}", c,', '[Item(f"{d}/{c}/{n}", c + 1,', "a/1/0: the label must be a number from 0 to 1"),
        ("c, d, f", 'c, "x", f', "has images of x, but its spec declares a, b, c"),
        ('[Item(f"{d}/{c}/{n}"', '[Item(f"{d}/{c}"', "two images have the same name"),
    ],
)
def test_a_dataset_that_differs_from_its_spec_is_refused(
    old: str, new: str, expected: str, tiny: Tiny, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    assert old in ALL_KINDS
    path.write_text(ALL_KINDS.replace(old, new, 1))
    with pytest.raises(UserError, match=f"dataset 'flat': .*{expected}"):
        make_context(tiny(dataset="flat", target_domain="c", extend=str(path), batch_size=4))


def test_an_edited_algorithm_is_not_mistaken_for_the_old_one_in_the_same_process(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    values = {"algorithm": "mymatch", "extend": str(path)}
    for number in (1, 2):
        path.write_text(ALGORITHM.replace("NUMBER", str(number)))
        assert training.build(make_context(tiny(**values))).number == number


def test_the_help_includes_the_options_of_extensions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "mine.py", "mine")
    for words in (["--extend", path], [f"--extend={path}"]):
        with pytest.raises(SystemExit):
            main(["train", *words, "--help"])
        assert "--mine_weight" in capsys.readouterr().out


@pytest.mark.parametrize("flag", ["call", "command", "folder"])
def test_arguments_of_a_command_are_not_replaced_by_flags_of_extensions(flag: str, tmp_path: Path) -> None:
    words = ["--extend", write(tmp_path / "mine.py", "mine"), "--algorithms", "fixmatch_mine", "--dry_run"]
    with pytest.raises(UserError, match=f"command line: --{flag}: no such setting"):
        main(["sweep", *words, f"--{flag}", "1"])


def test_one_class_can_implement_several_plugins(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    other = 'register(PluginSpec(name="other", title="Other", about="", options=SPEC.options))(Mine)\n'
    path.write_text(PLUGIN.format(name="mine", weight=0.1) + other)
    assert tiny(algorithm="fixmatch_other", extend=str(path)).options["mine_weight"] == 0.1


def test_one_file_can_contribute_all_four_kinds(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(ALL_KINDS)
    values = {"dataset": "flat", "net": "meannet", "algorithm": "halfmatch_small_upcsc", "target_domain": "c"}
    settings = tiny(extend=str(path), **values, batch_size=4, img_size=8, cutout=4, labels_per_class=2)
    result = training.run(settings).result
    assert (result["title"], result["dataset"]) == ("HalfMatch + Small + UPCSC", "flat")
    assert result["metrics"]["train/small_weight"] == 0.1
    assert result["options"]["p_cutoff"] == 0.5
