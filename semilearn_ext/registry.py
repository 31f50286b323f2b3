"""The registries of algorithms, plug-ins, datasets and networks, and the rules for names. Does not import torch or USB.

Files passed with ``--extend`` use the same function, :func:`add`. Registering a name twice, or an option with two
owners, is an error that names both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from semilearn_ext import algorithms, data, nets, plugins
from semilearn_ext.errors import UserError, did_you_mean, shown
from semilearn_ext.names import COMMAND_WORDS, USB_ARGUMENTS, check_folder_name, check_name
from semilearn_ext.settings.convert import option_value
from semilearn_ext.settings.schema import KEYS
from semilearn_ext.specs import AlgorithmSpec, DatasetSpec, Needs, NetSpec, Option, PluginSpec, Spec

S = TypeVar("S", bound=Spec)
HOME = "semilearn_ext"
GROUP = "usb"
"""The name that stands for all of USB's algorithms; see :func:`expand`."""


class Registry(Generic[S]):
    """The specs of one kind, by name, and the origin of each."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.origins: dict[str, str] = {}
        self._specs: dict[str, S] = {}

    def check_is_new(self, name: str, origin: str) -> None:
        for known in self._specs:
            if known.casefold() == name.casefold():  # some file systems do not distinguish the folders of their runs
                raise UserError(
                    f"{origin}: {self.kind} {known!r} is already defined in {self.origins[known]}; choose another name"
                )

    def add(self, spec: S, origin: str = HOME) -> None:
        self.check_is_new(spec.name, origin)
        for known in self:
            if spec.title and known.title == spec.title:
                raise UserError(
                    f"{origin}: title {spec.title!r} of {self.kind} {spec.name!r} is already that of {known.name!r}; "
                    f"choose another title, because tables show it"
                )
        self._specs[spec.name] = spec
        self.origins[spec.name] = origin

    def remove(self, origin: str) -> None:
        """Remove everything that ``origin`` has declared."""
        for name in [name for name, place in self.origins.items() if place == origin]:
            del self._specs[name], self.origins[name]

    def get(self, name: str, where: str) -> S:
        """The spec called ``name``. The error for an unknown name suggests the nearest known one."""
        if name not in self._specs:
            hint = did_you_mean(name, self._specs) or f" (known: {', '.join(sorted(self._specs))})"
            raise UserError(f"{where}: {name!r} is not a known {self.kind}{hint}")
        return self._specs[name]

    def names(self) -> list[str]:
        return list(self._specs)

    def __contains__(self, name: object) -> bool:
        return name in self._specs

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._specs.values()))


ALGORITHMS: Registry[AlgorithmSpec] = Registry("algorithm")
PLUGINS: Registry[PluginSpec] = Registry("plug-in")
DATASETS: Registry[DatasetSpec] = Registry("dataset")
NETS: Registry[NetSpec] = Registry("network")


_FIELDS: dict[str, tuple[type, str]] = {
    **dict.fromkeys(("name", "title", "about", "paper"), (str, "one line of text")),
    "options": (dict, "a dict of names and Options"),
    "needs": (Needs, "Needs(...)"),
}
"""The types of fields in specs, which extensions can get wrong."""


def add(spec: Spec, origin: str = HOME) -> None:
    """Register ``spec``. Names and options that are already in use are an error."""
    if not isinstance(spec, AlgorithmSpec | PluginSpec | DatasetSpec | NetSpec):
        raise UserError(f"{origin}: expected the spec of an algorithm, plug-in, dataset or network, got {shown(spec)}")
    for field, (kind, expected) in _FIELDS.items():
        value = getattr(spec, field, kind())
        if not isinstance(value, kind) or (isinstance(value, str) and len(value.splitlines()) > 1):
            raise UserError(f"{origin}: {field} of {shown(spec.name)}: expected {expected}, got {shown(value)}")
    check_name(spec.name, origin)
    if isinstance(spec, AlgorithmSpec):
        ALGORITHMS.check_is_new(spec.name, origin)
        _check_algorithm_name(spec.name, origin)
        _check_options(f"algorithm {spec.name!r}", spec.options, ((o.name, o.options) for o in PLUGINS), origin)
        ALGORITHMS.add(spec, origin)
    elif isinstance(spec, PluginSpec):
        PLUGINS.check_is_new(spec.name, origin)
        _check_plugin_name(spec.name, origin)
        others = ((other.name, other.options) for other in (*ALGORITHMS, *PLUGINS))
        _check_options(f"plug-in {spec.name!r}", spec.options, others, origin)
        PLUGINS.add(spec, origin)
    elif isinstance(spec, DatasetSpec):
        _check_domains(spec, origin)
        DATASETS.add(spec, origin)
    else:
        NETS.add(spec, origin)


def remove(origin: str) -> None:
    for registry in (ALGORITHMS, PLUGINS, DATASETS, NETS):
        registry.remove(origin)


def declared_by(origin: str) -> list[Spec]:
    """Everything that ``origin`` has declared."""
    registries: tuple[Registry[Any], ...] = (ALGORITHMS, PLUGINS, DATASETS, NETS)
    return [spec for registry in registries for spec in registry if registry.origins[spec.name] == origin]


def _check_algorithm_name(name: str, origin: str) -> None:
    """Raise an error for a name that already means something else, such as ``fixmatch_upcsc``."""
    if name.partition("_")[0] == GROUP:
        raise UserError(f"{origin}: algorithm {name!r}: {GROUP!r} means all of USB's algorithms; choose another name")
    _check_combinations({*ALGORITHMS.names(), name}, set(PLUGINS.names()), f"{origin}: algorithm {name!r}")


def _check_plugin_name(name: str, origin: str) -> None:
    if "_" in name:
        raise UserError(f"{origin}: plug-in {name!r}: '_' separates plug-ins; choose a name without it")
    if "." in name:
        raise UserError(f"{origin}: plug-in {name!r}: modules of a network have no '.' in their names; rename it")
    _check_combinations(set(ALGORITHMS.names()), {*PLUGINS.names(), name}, f"{origin}: plug-in {name!r}")


def _check_combinations(bases: set[str], named: set[str], where: str) -> None:
    """Raise an error if an algorithm has the same name as another one with plug-ins."""
    for algorithm in bases:
        base, _, last = algorithm.rpartition("_")
        while last in named:
            if base in bases:
                extra = algorithm.removeprefix(f"{base}_").replace("_", " and ")
                raise UserError(
                    f"{where}: {algorithm!r} would mean both an algorithm and {base} with the plug-in {extra}; "
                    f"choose another name"
                )
            base, _, last = base.rpartition("_")


def _check_domains(spec: DatasetSpec, origin: str) -> None:
    where = f"{origin}: domains of dataset {spec.name!r}"
    if not isinstance(spec.domains, tuple) or not all(isinstance(name, str) for name in spec.domains):
        raise UserError(f"{where}: expected a tuple of names, got {shown(spec.domains)}")
    for name in spec.domains:
        check_folder_name(name, where)
    if len(set(spec.domains)) != len(spec.domains):
        raise UserError(f"{where}: a name is given twice")


def _check_options(
    owner: str, options: Mapping[str, Option], others: Iterable[tuple[str, Mapping[str, Option]]], origin: str
) -> None:
    """Raise an error for an option that another method owns. Related plug-ins may share one declaration of an option.

    Algorithms may use the same option names, because a run has only one algorithm.
    """
    for name, option in options.items():
        where = f"{origin}: option {name!r} of {owner}"
        if name in KEYS:
            raise UserError(f"{where} is already a general setting; rename the option")
        if name in USB_ARGUMENTS:
            raise UserError(f"{where} is already an argument of USB; rename the option")
        if name in COMMAND_WORDS:
            raise UserError(f"{where} is already a flag of ssdg or a key of config files; rename the option")
        if not name.isidentifier():
            raise UserError(f"{where}: option names consist of letters, digits and '_'; rename the option")
        if not isinstance(option, Option) or option.type not in (bool, int, float, str):
            raise UserError(
                f"{where}: expected an Option whose default is a number, string or boolean, got {shown(option)}"
            )
        if not isinstance(option.help, str):
            raise UserError(f"{where}: help: expected text, got {shown(option.help)}")
        option_value(option, option.default, f"{where}: default")
    for other, other_options in others:
        for name in options.keys() & other_options.keys():
            if options[name] is not other_options[name]:
                raise UserError(
                    f"{origin}: option {name!r} of {owner} is already an option of {other!r}; rename the option"
                )


class Method(NamedTuple):
    """The parts of an algorithm's name: ``fixmatch_upcsc`` is the base fixmatch with the plug-in upcsc."""

    base: str
    plugins: tuple[str, ...]


def parse_method(algorithm: str, where: str) -> Method:
    """Split the name of an algorithm into its base and plug-ins, and check that they can be combined."""
    base = algorithm
    named: tuple[str, ...] = ()
    while base not in ALGORITHMS:
        base, _, last = base.rpartition("_")
        if not base or last not in PLUGINS:
            raise UserError(f"{where}: {algorithm!r} is not a known algorithm{_hint(algorithm)}")
        named = (last, *named)
    spec = ALGORITHMS.get(base, where)
    if spec.unavailable:
        raise UserError(f"{where}: USB's {base} is not available: {spec.unavailable}")
    for plugin in named:
        reason = incompatible(spec, PLUGINS.get(plugin, where))
        if reason:
            raise UserError(f"{where}: {reason}")
    heads = [plugin for plugin in named if PLUGINS.get(plugin, where).needs.head]
    if len(heads) > 1:
        raise UserError(f"{where}: {' and '.join(heads)} both replace the classifier; use one of them")
    if len(set(named)) != len(named):
        raise UserError(f"{where}: {algorithm!r} contains a plug-in twice; remove one of them")
    return Method(base, named)


def incompatible(base: AlgorithmSpec, plugin: PluginSpec) -> str:
    """Why ``plugin`` cannot be added to ``base``; empty if it can."""
    if base.no_plugins:
        return f"{base.name} does not support plug-ins: {base.no_plugins}"
    if plugin.needs.head and not base.takes_head:
        bases = ", ".join(spec.name for spec in ALGORITHMS if spec.takes_head)
        return f"{plugin.name} replaces the classifier, which {base.name} does not support; use it with {bases}"
    return ""


def methods() -> list[str]:
    """Names of all algorithms that can run, alone and with one plug-in."""
    bases = [spec for spec in ALGORITHMS if not spec.unavailable]
    pairs = [f"{base.name}_{plugin.name}" for base in bases for plugin in PLUGINS if not incompatible(base, plugin)]
    return [*(base.name for base in bases), *pairs]


def expand(name: str) -> list[str]:
    """``usb`` to all of USB's algorithms, ``usb_upcsc`` to those that take the plug-in, with it; other names as is."""
    group, _, plugin = name.partition("_")
    if group != GROUP or name in ALGORITHMS or (plugin and plugin not in PLUGINS):
        return [name]
    bases = [spec.name for spec in ALGORITHMS if spec.name in algorithms.USB_NAMES]
    runnable = methods()
    return [method for base in bases if (method := f"{base}_{plugin}" if plugin else base) in runnable]


def _hint(algorithm: str) -> str:
    known = ", ".join(sorted(ALGORITHMS.names()))
    return did_you_mean(algorithm, methods()) or f" (known: {known}, optionally with plug-ins, as in fixmatch_upcsc)"


def options_of(method: Method) -> dict[str, Option]:
    """The options of the base and of every plug-in."""
    options = dict(ALGORITHMS.get(method.base, "algorithm").options)
    for name in method.plugins:
        options |= PLUGINS.get(name, "plug-in").options
    return options


def declared_options() -> dict[str, dict[Option, list[str]]]:
    """The owners of every option, by name and declaration. Algorithms may declare the same name differently."""
    declared: dict[str, dict[Option, list[str]]] = {}
    available = [spec for spec in ALGORITHMS if not spec.unavailable]
    for spec in sorted((*available, *PLUGINS), key=lambda spec: spec.name):
        for name, option in spec.options.items():
            declared.setdefault(name, {}).setdefault(option, []).append(spec.name)
    return dict(sorted(declared.items()))


def owners_of(option: str) -> list[str]:
    """Names of the algorithms and plug-ins that have ``option``."""
    return sorted(spec.name for spec in (*ALGORITHMS, *PLUGINS) if option in spec.options)


def steps_of(base: str) -> tuple[str, ...]:
    """The training steps that an algorithm supports, the default first."""
    spec = ALGORITHMS.get(base, "algorithm")
    in_usb = bool(spec.implementation or spec.engine) or base in algorithms.USB_NAMES
    return (*(("usb",) if in_usb else ()), *(("reference",) if spec.reference else ()))


def method_title(base: str, named: Iterable[str] = (), variant: str = "") -> str:
    """The title of a method, such as ``FixMatch + UPCSC (top1 proxy)``.

    A base that is not registered is shown by its name, and a plug-in by its capitalised name.
    """
    parts = [ALGORITHMS.get(base, "").title if base in ALGORITHMS else base]
    parts += [PLUGINS.get(name, "").title if name in PLUGINS else name.capitalize() for name in named]
    title = " + ".join(parts)
    return f"{title} ({variant.replace('_', ' ')})" if variant else title


for _spec in (*algorithms.SPECS, *plugins.SPECS, *data.SPECS, *nets.SPECS):
    add(_spec)
