"""The names ``algorithm`` may take and the options that go with each. Light: no torch, no USB.

A name is a base, or a base and plug-ins: ``fixmatch``, ``fixmatch_upcsc``, ``freematch_upc_sc``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.settings.usb_options import CANNOT_RUN, USB_OPTIONS, Option

# One line a method of our own: its name and its options.
OUR_OPTIONS: dict[str, dict[str, Option]] = {
    "erm": {},
    "stylematch": {**USB_OPTIONS["fixmatch"], "style_alpha": Option(0.5, "share of the other domain's style")},
}

BASES: dict[str, dict[str, Option]] = {
    **{name: options for name, options in USB_OPTIONS.items() if name not in CANNOT_RUN},
    **OUR_OPTIONS,
}

# Plug-ins need to know which images the base is confident of. Tried one by one.
NO_PLUGINS: dict[str, str] = {
    **dict.fromkeys(("erm", "supervised", "fullysupervised"), "it uses no unlabelled images"),
    **dict.fromkeys(("meanteacher", "pimodel"), "it asks for consistency on all images and trusts none more"),
    **dict.fromkeys(("mixmatch", "remixmatch"), "it mixes all images, with no threshold that parts them"),
    "vat": "it perturbs all images and returns no features",
}

_CONTRAST: dict[str, Option] = {
    "upc_weight": Option(1.0, "weight of the UPC loss"),
    "sc_weight": Option(1.0, "weight of the SC loss"),
    "form": Option("paper", "the paper's equations, or reference: the released code's one mean and dropped negatives"),
    "surrogate": Option("weighted", "SC's positive: weighted, average or top1 of the candidates' proxies"),
    "unconfident_negatives": Option(True, "unconfident views are negatives of confident ones in UPC"),
    "projector_dim": Option(0, "width of the two projectors; 0: that of the feature"),
    "views": Option("all", "views that are contrasted: all, weak or strong"),
}
PLUGIN_OPTIONS: dict[str, dict[str, Option]] = {
    "upc": {name: option for name, option in _CONTRAST.items() if name not in ("sc_weight", "surrogate")},
    "sc": {name: option for name, option in _CONTRAST.items() if name not in ("upc_weight", "unconfident_negatives")},
    "upcsc": _CONTRAST,
    "fbcsa": {
        "fbc_weight": Option(0.1, "weight of the conformity loss"),
        "sa_weight": Option(0.5, "weight of the alignment loss"),
    },
    "dgwm": {},
}
# These put a classifier in the place of the base's: its step has to be known.
PLUGIN_BASES: dict[str, tuple[str, ...]] = {"dgwm": ("fixmatch", "freematch", "stylematch")}
REFERENCE_STEP = ("fixmatch", "stylematch")
LABELLED_ONLY = ("erm", "supervised", "fullysupervised")
CHOICES: dict[str, tuple[str, ...]] = {
    "form": ("paper", "reference"),
    "surrogate": ("weighted", "average", "top1"),
    "views": ("all", "weak", "strong"),
    "tsa_schedule": ("none", "linear", "log", "exp"),
}


class Method(NamedTuple):
    """An algorithm's name taken apart."""

    base: str
    plugins: tuple[str, ...]


def parse_name(algorithm: str, where: str) -> Method:
    """The base and the plug-ins that ``algorithm`` names, or a UserError that says what is wrong."""
    base = algorithm
    plugins: tuple[str, ...] = ()
    while base not in USB_OPTIONS and base not in BASES:
        base, _, last = base.rpartition("_")
        if not base or last not in PLUGIN_OPTIONS:
            raise UserError(f"{where}: {algorithm!r} is not a known algorithm{_hint(algorithm)}")
        plugins = (last, *plugins)
    if base in CANNOT_RUN:
        raise UserError(f"{where}: USB's {base} cannot run in this setting: {CANNOT_RUN[base]}")
    if plugins and base in NO_PLUGINS:
        raise UserError(f"{where}: {base} cannot take plug-ins: {NO_PLUGINS[base]}")
    for plugin in plugins:
        if not can_host(base, plugin):
            raise UserError(
                f"{where}: {plugin} brings a classifier of its own, and {base} does not take one; "
                f"it runs on {', '.join(PLUGIN_BASES[plugin])}"
            )
    if len(set(plugins)) != len(plugins):
        raise UserError(f"{where}: {algorithm!r} names a plug-in twice")
    return Method(base, plugins)


def can_host(base: str, plugin: str) -> bool:
    return base not in NO_PLUGINS and base in PLUGIN_BASES.get(plugin, (base,))


def check_step(algorithm: str, step: str, where: str) -> None:
    if step == "reference" and parse_name(algorithm, "algorithm").base not in REFERENCE_STEP:
        raise UserError(f"{where}: the reference step is that of {' and '.join(REFERENCE_STEP)}; use step: usb")


def _hint(algorithm: str) -> str:
    return did_you_mean(algorithm, known_names()) or f" (known: {', '.join(sorted(BASES))}, and plug-ins on top)"


def known_names() -> list[str]:
    """Bases, and bases with one plug-in."""
    return [*BASES, *(f"{base}_{plugin}" for base in BASES for plugin in PLUGIN_OPTIONS if can_host(base, plugin))]


def options_of(algorithm: str, where: str) -> Mapping[str, Option]:
    """The options of the base and of every plug-in."""
    method = parse_name(algorithm, where)
    options = dict(BASES[method.base])
    for plugin in method.plugins:
        options.update(PLUGIN_OPTIONS[plugin])
    return options


def all_options() -> dict[str, dict[str, Option]]:
    """Options by owner: bases and plug-ins."""
    return {**BASES, **PLUGIN_OPTIONS}


def owners_of(option: str) -> list[str]:
    """The bases and plug-ins that have ``option``, by name."""
    return sorted(name for name, options in all_options().items() if option in options)
