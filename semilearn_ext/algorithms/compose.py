"""Compose the class of an algorithm from its name, and add it to USB's registry.

``fixmatch_upcsc`` is USB's own FixMatch with the plug-in, on stock USB, with USB's loaders, trainer and checkpoints.
``ssdg_fixmatch_upcsc`` is the same method on this package's engine, and ``ssdg_fixmatch_upcsc@reference`` is the method
in the SSDG benchmark's training step.
"""

from __future__ import annotations

from typing import Any

from semilearn_ext.algorithms.adapt import adapt
from semilearn_ext.engine.context import registry_name
from semilearn_ext.plugins.mixin import GENERAL, PluginMixin
from semilearn_ext.plugins.stock import StockUSB
from semilearn_ext.registry import ALGORITHMS as SPECS
from semilearn_ext.registry import PLUGINS, Method, parse_method
from semilearn_ext.semilearn_api import ALGORITHMS, SSL_Argument, str2bool
from semilearn_ext.settings.schema import KEYS
from semilearn_ext.specs import AlgorithmSpec, Option


def register(algorithm: str, step: str = "usb") -> str:
    """Register ``algorithm`` on this package's engine, unless it already is. Returns its name in USB's registry."""
    key = registry_name(algorithm, step)
    method = parse_method(algorithm, "algorithm")
    if _is_current(key, method):
        return key
    spec = SPECS.get(method.base, "algorithm")
    base = spec.load_as(spec.reference) if step == "reference" else _engine_class(spec)
    body: dict[str, Any] = {"spec": spec, "__doc__": base.__doc__}
    bases: tuple[type, ...] = (base,)
    if method.plugins:
        bases = (PluginMixin, base)
        body |= _with_plugins(base, method)
    ALGORITHMS[key] = type(_class_name(base, method), bases, body)
    return key


def register_stock(algorithm: str) -> str:
    """Register ``algorithm`` on stock USB under its own name, unless it already is. Returns that name."""
    method = parse_method(algorithm, "algorithm")
    if _is_current(algorithm, method):
        return algorithm
    spec = SPECS.get(method.base, "algorithm")
    base = _with_arguments(spec) if spec.implementation else ALGORITHMS[method.base]
    if method.plugins:
        body = {"base": method.base, **_with_plugins(base, method)}
        base = type(_class_name(base, method), (PluginMixin, base, StockUSB), body)
    ALGORITHMS[algorithm] = base
    return algorithm


def _with_arguments(spec: AlgorithmSpec) -> type:
    """The class of an algorithm from outside USB, with its options as arguments."""
    base = spec.load()
    general = {name: Option.of_setting(KEYS[name]) for name in spec.reads}
    arguments = [_argument(name, option) for name, option in {**spec.options, **general}.items()]
    arguments += [_num_domains()] if spec.needs_domains else []
    return type(base.__name__, (base,), {"spec": spec, "get_argument": staticmethod(lambda: list(arguments))})


def _is_current(key: str, method: Method) -> bool:
    """Whether ``key`` is registered with the current specs; an edited extension has new ones."""
    if key not in ALGORITHMS:
        return False
    registered = ALGORITHMS[key]
    specs = tuple(PLUGINS.get(name, "plug-in") for name in method.plugins)
    own = getattr(registered, "spec", None)
    return getattr(registered, "plugin_specs", ()) == specs and own in (None, SPECS.get(method.base, "algorithm"))


def _engine_class(spec: AlgorithmSpec) -> type:
    if spec.engine:
        return adapt(spec, spec.load_as(spec.engine))
    return adapt(spec, spec.load() if spec.implementation else ALGORITHMS[spec.name])


def _class_name(base: type, method: Method) -> str:
    return "".join([base.__name__, *(plugin.title() for plugin in method.plugins)])


def _with_plugins(base: Any, method: Method) -> dict[str, Any]:
    specs = tuple(PLUGINS.get(name, "plug-in") for name in method.plugins)

    def get_argument() -> list[Any]:
        """The arguments of the base, of the plug-ins, and the general ones that plug-ins need."""
        own = {name: option for spec in specs for name, option in spec.options.items()}
        arguments = [*base.get_argument(), *(_argument(name, option) for name, option in {**GENERAL, **own}.items())]
        known = {argument.name for argument in arguments}
        if any(spec.needs.domains for spec in specs) and _num_domains().name not in known:
            arguments.append(_num_domains())
        return arguments

    return {"plugin_specs": specs, "get_argument": staticmethod(get_argument), "__doc__": base.__doc__}


def _argument(name: str, option: Option) -> Any:
    return SSL_Argument(f"--{name}", str2bool if option.type is bool else option.type, option.default, option.help)


def _num_domains() -> Any:
    return _argument("num_domains", Option(0, "number of source domains"))
