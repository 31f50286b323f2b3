"""Names and options have exactly one owner, and names of methods are parsed unambiguously."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from semilearn_ext import registry
from semilearn_ext.__main__ import parser
from semilearn_ext.errors import UserError
from semilearn_ext.settings.schema import KEYS
from semilearn_ext.specs import AlgorithmSpec, DatasetSpec, Needs, NetSpec, Option, PluginSpec

HERE = "mine.py"


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    registry.remove(HERE)


def plugin(name: str = "mine", **options: Option) -> PluginSpec:
    return PluginSpec(name=name, title="Mine", about="a plug-in", options=options)


def test_a_plugin_cannot_reuse_an_option_of_a_base() -> None:
    """Otherwise, a plug-in with an option T would silently change FixMatch's T."""
    with pytest.raises(UserError, match=r"mine.py: option 'T' of plug-in 'mine' is already an option of 'adamatch'"):
        registry.add(plugin(T=Option(0.1, "temperature")), HERE)


def test_a_plugin_cannot_reuse_an_option_of_another_plugin() -> None:
    with pytest.raises(UserError, match=r"option 'loss_form' of plug-in 'mine' is already an option of 'upc'"):
        registry.add(plugin(loss_form=Option("paper", "form")), HERE)


def test_an_option_cannot_be_a_general_setting() -> None:
    with pytest.raises(UserError, match="option 'lr' of plug-in 'mine' is already a general setting"):
        registry.add(plugin(lr=Option(0.1, "rate")), HERE)


def test_an_option_cannot_be_an_argument_of_usb() -> None:
    """Otherwise, the plug-in would get USB's value instead of its own, and get_config would fail."""
    from semilearn import get_config

    usb_arguments = vars(get_config({"algorithm": "supervised"})).keys() - KEYS.keys()
    for name in (*usb_arguments, "num_domains", "context", "distributed"):
        with pytest.raises(UserError, match=f"option '{name}' of plug-in 'mine' is already"):
            registry.add(plugin(**{name: Option(1.0, "number")}), HERE)


def commands_with_settings(top: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """All commands and parts of commands that have the settings as flags."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                yield from commands_with_settings(part)
    if "--algorithm" in top._option_string_actions:
        yield top


def test_an_option_cannot_be_an_argument_of_a_command_or_a_key_of_config_files() -> None:
    """Otherwise, no command line could set it, or it would replace an argument of the command."""
    arguments = {"command", "call"}
    for command in commands_with_settings(parser()):
        arguments |= {word.lstrip("-") for a in command._actions for word in (*a.option_strings, a.dest)}
    owned = {name for spec in (*registry.ALGORITHMS, *registry.PLUGINS) for name in spec.options}
    words = (arguments | {"base", "methods"}) - KEYS.keys() - owned
    assert {"c", "seeds", "time", "with_base", "grid", "folder"} <= words
    for name in words:
        with pytest.raises(UserError, match=f"option '{name}' of plug-in 'mine' is already a flag of ssdg"):
            registry.add(plugin(**{name: Option(1.0, "number")}), HERE)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"my-weight": Option(1.0, "weight")}, "option 'my-weight' of plug-in 'mine': option names consist of"),
        ({"my weight": Option(1.0, "weight")}, "option names consist of letters, digits and '_'"),
        ({"mine": Option(None, "weight")}, "expected an Option whose default is a number, string or boolean"),
        ({"mine": Option([1, 2], "weight")}, "expected an Option whose default"),
        ({"mine": 1.0}, "expected an Option whose default is a number, string or boolean, got 1.0"),
    ],
)
def test_an_option_that_no_flag_can_set_is_refused(options: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        registry.add(plugin(**options), HERE)


def test_an_algorithm_can_share_options_with_bases_but_not_with_plugins() -> None:
    spec = AlgorithmSpec(name="mine", title="Mine", about="an algorithm", options={"T": Option(0.7, "temperature")})
    registry.add(spec, HERE)
    assert registry.options_of(registry.parse_method("mine", "test"))["T"].default == 0.7
    other = replace(spec, name="other", options={"upc_weight": Option(1.0, "weight")})
    with pytest.raises(UserError, match="option 'upc_weight' of algorithm 'other' is already an option of 'upc'"):
        registry.add(other, HERE)


def test_general_words_can_be_option_names() -> None:
    """For example 'views', which UPCSC does not declare."""
    registry.add(plugin(views=Option("all", "views")), HERE)
    assert "views" in registry.options_of(registry.parse_method("fixmatch_mine", "test"))


@pytest.mark.parametrize(
    "spec",
    [
        PluginSpec(name="upcsc", title="", about=""),
        AlgorithmSpec(name="fixmatch", title="", about=""),
        DatasetSpec(name="pacs", title="", about=""),
        NetSpec(name="resnet18", title="", about=""),
    ],
)
def test_a_second_registration_names_both_places(spec: PluginSpec) -> None:
    with pytest.raises(UserError, match=rf"mine.py: .*'{spec.name}' is already defined in semilearn_ext"):
        registry.add(spec, HERE)


def test_names_that_differ_only_in_case_and_equal_titles_are_refused() -> None:
    """Their runs would have the same folder on some file systems, or the same title in tables."""
    with pytest.raises(UserError, match=r"mine\.py: plug-in 'upcsc' is already defined in semilearn_ext"):
        registry.add(plugin("UPCSC"), HERE)
    with pytest.raises(UserError, match="title 'UPCSC' of plug-in 'mine' is already that of 'upcsc'; choose another"):
        registry.add(replace(plugin(), title="UPCSC"), HERE)


@pytest.mark.parametrize(("name", "expected"), [("../x", "names consist of"), ("a b", "names consist of")])
def test_names_that_could_leave_a_folder_are_refused(name: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        registry.add(NetSpec(name=name, title="", about=""), HERE)
    with pytest.raises(UserError, match="'_' separates plug-ins"):
        registry.add(plugin("my_plugin"), HERE)


def test_only_one_plugin_can_replace_the_classifier() -> None:
    registry.add(replace(plugin("head"), needs=Needs(head=True)), HERE)
    with pytest.raises(UserError, match="dgwm and head both replace the classifier; use one of them"):
        registry.parse_method("fixmatch_dgwm_head", "test")


def test_titles_follow_from_the_specs() -> None:
    assert registry.method_title("fixmatch", ("upcsc",), "top1_proxy") == "FixMatch + UPCSC (top1 proxy)"
    assert registry.method_title("fixmatch", (), "sc") == "FixMatch (sc)"
    assert registry.method_title("fixmatch", ("entropy",)) == "FixMatch + Entropy"


@pytest.mark.parametrize("order", [1, -1])
def test_an_algorithm_cannot_have_the_name_of_another_one_with_plugins(order: int) -> None:
    """Otherwise, fixmatch_mine would silently be the algorithm instead of FixMatch with the plug-in, or the reverse."""
    specs = [plugin("mine"), AlgorithmSpec(name="fixmatch_mine", title="Other", about="an algorithm")][::order]
    registry.add(specs[0], HERE)
    with pytest.raises(UserError, match="'fixmatch_mine' would mean both an algorithm and fixmatch with the plug-in"):
        registry.add(specs[1], HERE)
    with pytest.raises(UserError, match=r"'fixmatch_upc_sc' would mean both .* fixmatch with the plug-in upc and sc"):
        registry.add(AlgorithmSpec(name="fixmatch_upc_sc", title="Other", about="an algorithm"), HERE)


@pytest.mark.parametrize("name", ["usb", "usb_upcsc"])
def test_an_algorithm_cannot_have_the_name_of_the_group_of_usbs_algorithms(name: str) -> None:
    with pytest.raises(UserError, match=f"algorithm '{name}': 'usb' means all of USB's algorithms"):
        registry.add(AlgorithmSpec(name=name, title="Other", about="an algorithm"), HERE)


def test_a_name_that_no_module_can_have_is_refused() -> None:
    with pytest.raises(UserError, match=r"plug-in 'my.plugin': modules of a network have no '.'"):
        registry.add(plugin("my.plugin"), HERE)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (Option(-1.0, "weight", minimum=0), "default: must be at least 0, got -1.0"),
        (Option("c", "mode", choices=("a", "b")), "default: 'c' is not one of a, b"),
        (Option(float("nan"), "weight"), "default: expected a number, got nan"),
    ],
)
def test_a_default_must_be_valid_itself(option: Option, expected: str) -> None:
    with pytest.raises(UserError, match=f"mine.py: option 'mine' of plug-in 'mine': {expected}"):
        registry.add(plugin(mine=option), HERE)


def test_a_plugin_that_is_registered_twice_is_reported_by_its_name() -> None:
    spec = plugin(mine_weight=Option(1.0, "weight"))
    registry.add(spec, HERE)
    with pytest.raises(UserError, match=r"plug-in 'mine' is already defined in mine.py"):
        registry.add(plugin(mine_weight=Option(1.0, "weight")), HERE)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"title": 3}, "title of 'mine': expected one line of text, got 3"),
        ({"name": 3}, "name of 3: expected one line of text, got 3"),
        ({"about": "one\ntwo"}, "about of 'mine': expected one line of text, got 'one"),
        ({"options": ["mine_weight"]}, "options of 'mine': expected a dict of names and Options"),
        ({"options": {"mine": Option(1.0, None)}}, "option 'mine' of plug-in 'mine': help: expected text, got None"),  # type: ignore[arg-type]
        ({"needs": True}, r"needs of 'mine': expected Needs\(...\), got True"),
    ],
)
def test_fields_of_another_type_are_refused(values: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=f"mine.py: {expected}"):
        registry.add(replace(plugin(), **values), HERE)


@pytest.mark.parametrize(
    ("domains", "expected"),
    [
        ("uvw", "expected a tuple of names, got 'uvw'"),
        (("u", "u"), "a name is given twice"),
        (("u/v", "w"), "'u/v' is not a valid folder name"),
    ],
)
def test_domains_are_different_names_of_folders(domains: Any, expected: str) -> None:
    with pytest.raises(UserError, match=f"mine.py: domains of dataset 'mine': {expected}"):
        registry.add(DatasetSpec(name="mine", title="", about="", domains=domains), HERE)
