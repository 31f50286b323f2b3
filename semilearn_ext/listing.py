"""``python -m semilearn_ext list``: algorithms, benchmarks and networks, a line each. Light: no USB."""

from __future__ import annotations

from collections.abc import Mapping

from semilearn_ext.settings.methods import BASES, NO_PLUGINS, PLUGIN_OPTIONS
from semilearn_ext.settings.usb_options import CANNOT_RUN, Option

NETS = {
    "cnn": "four 3x3 convolutions in the style of Digits-DG, 256 features at 32x32",
    "resnet18": "torchvision's ResNet-18, 512 features; ImageNet weights with --pretrained",
    "wrn_*, resnet50, vit_*": "USB's own image networks",
}
DATASETS = {
    "digits_mini": "embedded: ten digits, four looks (pen, texture, street, print), 32x32, no download",
    "pacs": "7 classes: art_painting, cartoon, photo, sketch",
    "office_home": "65 classes: art, clipart, product, real_world",
    "digits_dg": "10 digits: mnist, mnist_m, svhn, syn",
    "mini_domainnet": "126 classes: clipart, painting, real, sketch",
    "folder": "your own images: data_dir/<domain>/<class>/*",
}


def _shown(options: Mapping[str, Option]) -> str:
    return ", ".join(f"{key} {option.default}" for key, option in options.items()) or "no options"


def render() -> str:
    lines = ["algorithms"]
    for name, options in sorted(BASES.items()):
        about = f"no plug-ins: {NO_PLUGINS[name]}; " if name in NO_PLUGINS else ""
        lines.append(f"  {name:<18} {about}{_shown(options)}")
    lines += [f"  {name:<18} cannot run: {reason}" for name, reason in CANNOT_RUN.items()]
    lines += ["", "plug-ins, written behind an algorithm: fixmatch_upcsc"]
    lines += [f"  {name:<18} {_shown(options)}" for name, options in PLUGIN_OPTIONS.items()]
    for title, entries in (("datasets", DATASETS), ("nets", NETS)):
        lines += ["", title, *(f"  {name:<18} {about}" for name, about in entries.items())]
    return "\n".join(lines)
