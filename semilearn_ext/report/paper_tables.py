"""The rows, benchmarks and label counts of the paper's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from semilearn_ext.report import paper_numbers
from semilearn_ext.report.methods import MethodId


class PaperTable(NamedTuple):
    """A table of the paper: its rows in parts, and its benchmarks and label counts."""

    title: str
    parts: Sequence[Sequence[MethodId]]
    labels: Sequence[int] = (10, 5)
    datasets: Sequence[str] = tuple(paper_numbers.dataset_order())

    @property
    def methods(self) -> list[MethodId]:
        return [method for part in self.parts for method in part]


def _with_plugins(base: str, *plugins: str) -> list[MethodId]:
    """The base without plug-ins, and with each of ``plugins``."""
    return [MethodId(base), *(MethodId(base, (plugin,)) for plugin in plugins)]


def _proxies(base: str) -> list[MethodId]:
    return [MethodId(base, ("upcsc",), variant) for variant in ("top1_proxy", "avg_proxy", "")]


_MAIN = (
    [MethodId(base) for base in ("erm", "meanteacher", "freematch", "fixmatch", "stylematch")],
    [MethodId(base, ("upcsc",)) for base in ("freematch", "fixmatch", "stylematch")],
)
_RIVALS = ("fbcsa", "dgwm", "upcsc")

PAPER_TABLES: Mapping[str, PaperTable] = {
    "label_10": PaperTable("Main results, ten labels per class", _MAIN, (10,)),
    "label_5": PaperTable("Main results, five labels per class", _MAIN, (5,)),
    "plugins": PaperTable(
        "Plug-ins on FixMatch and StyleMatch",
        (_with_plugins("fixmatch", *_RIVALS), _with_plugins("stylematch", *_RIVALS)),
    ),
    "plugins_freematch": PaperTable("Plug-ins on FreeMatch", (_with_plugins("freematch", *_RIVALS),)),
    "ablation": PaperTable(
        "Components of UPCSC", (_with_plugins("fixmatch", "upc", "sc", "upcsc"),), datasets=("pacs", "office_home")
    ),
    "ablation_upc": PaperTable(
        "UPC without the unconfident images",
        (
            [
                MethodId("fixmatch"),
                MethodId("fixmatch", ("upc",), "without_uu"),
                MethodId("fixmatch", ("upc",)),
                MethodId("fixmatch", ("upcsc",)),
            ],
        ),
        (10,),
        ("pacs",),
    ),
    "ablation_sc": PaperTable(
        "The positive of SC: top-1, average or weighted proxy",
        (_proxies("fixmatch"), _proxies("stylematch")),
        (10,),
        ("pacs",),
    ),
}
