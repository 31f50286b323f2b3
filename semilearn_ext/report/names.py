"""What methods and benchmarks are called: in run folders, in the paper's numbers and in print."""

from __future__ import annotations

from semilearn_ext.errors import UserError
from semilearn_ext.settings.methods import Method, parse_name

DATASET_TITLES = {
    "pacs": "PACS",
    "office_home": "OfficeHome",
    "digits_dg": "DigitsDG",
    "mini_domainnet": "miniDomainNet",
}
METHOD_TITLES = {
    "erm": "ERM",
    "meanteacher": "MeanTeacher",
    "freematch": "FreeMatch",
    "fixmatch": "FixMatch",
    "stylematch": "StyleMatch",
    "flexmatch": "FlexMatch",
    "softmatch": "SoftMatch",
    "simmatch": "SimMatch",
    "adamatch": "AdaMatch",
    "comatch": "CoMatch",
    "mixmatch": "MixMatch",
    "remixmatch": "ReMixMatch",
    "defixmatch": "DeFixMatch",
    "pseudolabel": "PseudoLabel",
    "pimodel": "PiModel",
    "dash": "Dash",
    "uda": "UDA",
    "vat": "VAT",
}


def canonical(method: str) -> str:
    """One name for what has two: ``supervised`` is ERM, and weighted proxies are UPCSC as it is."""
    base, underscore, rest = method.partition("_")
    name = f"erm{underscore}{rest}" if base == "supervised" else method
    return name.removesuffix("_weighted_proxy")


def take_apart(method: str) -> tuple[Method, str]:
    """The base and plug-ins that ``method`` names, and the variant behind them.

    A name whose beginning is not a known algorithm is its own base.
    """
    words = method.split("_")
    for end in range(len(words), 0, -1):
        try:
            return parse_name("_".join(words[:end]), "method"), "_".join(words[end:])
        except UserError:
            continue
    return Method(method, ()), ""


def base_of(method: str) -> str | None:
    """What ``method`` is compared with: ``fixmatch`` for ``fixmatch_upcsc_top1_proxy``; none for ``fixmatch``."""
    base = take_apart(method)[0].base
    return None if base == method else base


def method_title(method: str, kind: str = "") -> str:
    """``FixMatch + UPCSC (top1 proxy) [lr 0.03]``; ``kind`` is what sets these runs apart from others of the name."""
    (base, plugins), variant = take_apart(method)
    title = " + ".join([METHOD_TITLES.get(base, base), *(plugin.upper() for plugin in plugins)])
    title += f" ({variant.replace('_', ' ')})" if variant else ""
    return f"{title} [{kind}]" if kind else title


def dataset_title(dataset: str) -> str:
    return DATASET_TITLES.get(dataset, dataset)


def setting_title(dataset: str, labels: int) -> str:
    """A benchmark and its number of labels, in words."""
    return f"{dataset_title(dataset)}, {labels} {'label' if labels == 1 else 'labels'} a class"
