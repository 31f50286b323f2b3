"""``ssdg list``, and the generated parts of the Markdown docs. Imports neither torch nor USB.

A Markdown file contains a table between ``<!-- list: NAME -->`` and ``<!-- end of list -->``, with one of the names in
``TABLES``, or the names of the base algorithms (``names``). :func:`update` writes them from the specs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.registry import ALGORITHMS, DATASETS, NETS, PLUGINS, declared_options, incompatible, steps_of
from semilearn_ext.settings.convert import as_text
from semilearn_ext.specs import AlgorithmSpec, Option, PluginSpec, Spec


def render() -> str:
    """One line per algorithm, plug-in, dataset and network."""
    lines = ["algorithms"]
    lines += [_line(spec.name, _algorithm(spec)) for spec in _algorithms()]
    lines += ["", "plug-ins, added to an algorithm with '_': fixmatch_upcsc"]
    lines += [_line(spec.name, _plugin(spec)) for spec in PLUGINS]
    for title, registry in (("datasets", DATASETS), ("networks", NETS)):
        lines += ["", title, *(_line(spec.name, spec.about) for spec in registry)]
    return "\n".join(lines)


def _line(name: str, text: str) -> str:
    return f"  {name:<22} {text}"


def _algorithms() -> list[AlgorithmSpec]:
    return sorted(ALGORITHMS, key=lambda spec: spec.name)


def _algorithm(spec: AlgorithmSpec) -> str:
    if spec.unavailable:
        return f"not available: {spec.unavailable}"
    steps = steps_of(spec.name)
    notes = f"; step: {' or '.join(steps)}" if steps != ("usb",) else ""
    notes += f"; does not support plug-ins: {spec.no_plugins}" if spec.no_plugins else ""
    return f"{spec.about}{notes}{_options(spec.options)}"


def _plugin(spec: PluginSpec) -> str:
    bases = [base.name for base in ALGORITHMS if not base.unavailable and not incompatible(base, spec)]
    notes = f"; only with {', '.join(sorted(bases))}" if spec.needs.head else ""
    return f"{spec.about}{notes}{_options(spec.options)}"


def _options(options: Mapping[str, Option]) -> str:
    return f" [{', '.join(f'{name} {as_text(option.default)}' for name, option in options.items())}]" if options else ""


# --- tables in Markdown ---------------------------------------------------------------------------------------


def update(text: str, where: str) -> str:
    """``text`` with everything between markers updated."""
    return _MARKED.sub(lambda match: f"{match[1]}\n{_block(match[2], where)}\n{match[3]}", text)


_MARKED = re.compile(r"(<!-- list: (\w+) -->)\n.*?(<!-- end of list -->)", re.DOTALL)


def _block(name: str, where: str) -> str:
    if name == "names":
        return _names()
    if name not in TABLES:
        known = ("names", *TABLES)
        raise UserError(f"{where}: unknown list {name!r}{did_you_mean(name, known)} (known: {', '.join(known)})")
    header, *rows = TABLES[name]()
    return "\n".join(_row(cells) for cells in (header, ["---"] * len(header), *rows))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _about(spec: Spec) -> tuple[str, str]:
    """The title, linked to the paper if there is one, and the description."""
    about = spec.about.replace("<", "&lt;").replace("*", chr(92) + "*")
    return f"[{spec.title}]({spec.paper})" if spec.paper else spec.title, about


def _names() -> str:
    """The names of the base algorithms that can be used, in lines of 120 characters."""
    names = ", ".join(f"`{spec.name}`" for spec in _algorithms() if not spec.unavailable)
    return textwrap.fill(names, 120, break_on_hyphens=False)


def _methods() -> list[Sequence[str]]:
    rows = [(f"`{spec.name}`", *_about(spec)) for spec in _algorithms() if not spec.unavailable]
    return [("`algorithm`", "Method", "What it does"), *rows]


def _plugins() -> list[Sequence[str]]:
    rows = [(f"`<base>_{spec.name}`", *_about(spec)) for spec in PLUGINS]
    return [("`algorithm`", "Plug-in", "What it does"), *rows]


def _combinations() -> list[Sequence[str]]:
    rows = [(f"`{spec.name}`", _steps(spec), _compatible_plugins(spec)) for spec in _algorithms()]
    return [("Base", "Steps", "Plug-ins"), *rows]


def _steps(spec: AlgorithmSpec) -> str:
    if spec.unavailable:
        return f"not available: {spec.unavailable}"
    return ", ".join(f"`{step}`" for step in steps_of(spec.name))


def _compatible_plugins(spec: AlgorithmSpec) -> str:
    if spec.unavailable or spec.no_plugins:
        return "none" + (f": {spec.no_plugins}" if spec.no_plugins else "")
    return ", ".join(f"`{plugin.name}`" for plugin in PLUGINS if not incompatible(spec, plugin))


def _option_rows() -> list[Sequence[str]]:
    """One row per declaration of an option; algorithms may use the same name with different defaults."""
    rows = [
        (f"`{name}`", f"`{as_text(option.default)}`", _meaning(option), ", ".join(f"`{owner}`" for owner in owners))
        for name, declarations in declared_options().items()
        for option, owners in sorted(declarations.items(), key=lambda entry: entry[1])
    ]
    return [("Option", "Default", "Meaning", "Methods"), *rows]


def _meaning(option: Option) -> str:
    return f"{option.help} ({', '.join(f'`{choice}`' for choice in option.choices)})" if option.choices else option.help


def _datasets() -> list[Sequence[str]]:
    return [("`dataset`", "Dataset", "Content"), *((f"`{spec.name}`", *_about(spec)) for spec in DATASETS)]


def _networks() -> list[Sequence[str]]:
    return [("`net`", "Network", "Description"), *((f"`{spec.name}`", *_about(spec)) for spec in NETS)]


TABLES: Mapping[str, Callable[[], list[Sequence[str]]]] = {
    "methods": _methods,
    "plugins": _plugins,
    "combinations": _combinations,
    "options": _option_rows,
    "datasets": _datasets,
    "networks": _networks,
}
"""Every table by name, as a function that returns the header and the rows."""
