"""``python -m semilearn_ext list``: algorithms, benchmarks and networks, a line each. Light: no USB."""

from __future__ import annotations

from collections.abc import Mapping

from semilearn_ext.settings.methods import BASES, NO_PLUGINS, PLUGIN_OPTIONS
from semilearn_ext.settings.usb_options import CANNOT_RUN, Option

ALGORITHMS = {
    "adamatch": "relative threshold and distribution alignment",
    "comatch": "pseudo labels smoothed over a graph of embeddings",
    "dash": "a loss threshold that falls as training goes on",
    "defixmatch": "FixMatch, debiased with the labelled images",
    "erm": "labelled images only",
    "fixmatch": "the weak view's pseudo label for the strong view, above a fixed threshold",
    "flexmatch": "FixMatch with a threshold a class",
    "freematch": "FixMatch with thresholds that adapt by themselves, and a fairness term",
    "fullysupervised": "the same step as supervised: its data make the difference in USB",
    "meanteacher": "consistency with averaged weights",
    "mixmatch": "sharpened guesses, mixed images",
    "pimodel": "consistency of two weak views",
    "pseudolabel": "its own confident predictions as labels",
    "remixmatch": "MixMatch with alignment, strong views and rotations",
    "simmatch": "similar to labelled images in class and in features",
    "softmatch": "FixMatch with soft weights",
    "stylematch": "FixMatch with a stochastic classifier and a style view",
    "supervised": "USB's name for erm",
    "uda": "consistency with strong views, sharpened",
    "vat": "consistency under the worst small perturbation",
}
PLUGINS = {
    "upc": "unlabelled proxy contrast, confident images (CVPR 2025)",
    "sc": "surrogate classes, unconfident images (CVPR 2025)",
    "upcsc": "upc and sc: the paper's method (CVPR 2025)",
    "fbcsa": "conformity and alignment with prototypes by domain (CVPR 2024)",
    "dgwm": "class weights modulated by domain (WACV 2025); on fixmatch, freematch, stylematch",
}
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
    return f" [{', '.join(f'{key} {option.default}' for key, option in options.items())}]" if options else ""


def render() -> str:
    lines = ["algorithms"]
    for name, options in sorted(BASES.items()):
        about = f"; no plug-ins: {NO_PLUGINS[name]}" if name in NO_PLUGINS else ""
        lines.append(f"  {name:<18} {ALGORITHMS[name]}{about}{_shown(options)}")
    lines += [f"  {name:<18} cannot run: {reason}" for name, reason in CANNOT_RUN.items()]
    lines += ["", "plug-ins, written behind an algorithm: fixmatch_upcsc"]
    lines += [f"  {name:<18} {PLUGINS.get(name, 'your own')}{_shown(o)}" for name, o in PLUGIN_OPTIONS.items()]
    for title, entries in (("datasets", DATASETS), ("nets", NETS)):
        lines += ["", title, *(f"  {name:<18} {about}" for name, about in entries.items())]
    return "\n".join(lines)
