"""Load :class:`Settings` from defaults, YAML files and the command line, in increasing order of precedence.

A YAML file may include others with ``base: pacs.yaml`` or ``base: [a.yaml, b.yaml]``, relative to itself; its own keys
override theirs. ``methods:`` contains settings for some algorithms only, by name or pattern::

    methods:
      "*_upcsc": {loss_form: reference}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from semilearn_ext import documents, registry
from semilearn_ext.errors import UserError, did_you_mean, shown
from semilearn_ext.names import check_name
from semilearn_ext.settings.config_files import config_dir, find_config
from semilearn_ext.settings.convert import check_choice, check_range, convert, option_value
from semilearn_ext.settings.extensions import load_extension
from semilearn_ext.settings.schema import KEYS, TYPES, Settings
from semilearn_ext.specs import LIMITS

COMMAND_LINE, PYTHON = "command line", "python"
MAX_FILES = 100
"""The largest number of files that one config may include; a file counts every time it is included."""
# libyaml's dumper, if available, is ten times as fast, which matters for a sweep of a thousand runs.
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Raw(NamedTuple):
    """A value as it was written, and where it was written."""

    value: Any
    origin: str
    order: float = math.inf
    """Later values override earlier ones; the command line comes last."""

    def where(self, name: str) -> str:
        return f"{self.origin}: {'--' if self.origin == COMMAND_LINE else ''}{name}"


METHODS = "methods"


def read_yaml(path: Path) -> dict[str, Raw]:
    """The keys of ``path`` and of the files that it includes as ``base``.

    Sections for some algorithms are kept under ``methods`` and applied once the algorithm is known.
    """
    merged: dict[str, Raw] = {}
    sections: list[tuple[str, str, Raw]] = []
    for order, (origin, content) in enumerate(_layers(path, (), [])):
        for pattern, values in _sections(content.pop(METHODS, {}), origin).items():
            sections += [(pattern, name, Raw(value, origin, order)) for name, value in values.items()]
        merged.update({name: Raw(value, origin, order) for name, value in content.items()})
    return {**merged, **({METHODS: Raw(sections, str(path))} if sections else {})}


def read_record(path: Path) -> dict[str, Raw]:
    """Read the ``config.yaml`` of a run, which is complete and never includes other files."""
    content = _mapping(documents.read_yaml(path, follow=False), path)
    for name in ("base", METHODS):
        if name in content:
            raise UserError(f"{path}: {name}: not the config of a run, which contains plain settings only")
    return {name: Raw(value, str(path)) for name, value in content.items()}


def _layers(path: Path, chain: tuple[Path, ...], files: list[Path]) -> list[tuple[str, dict[str, Any]]]:
    """The contents of ``path`` and of the files that it includes, in the order in which they are applied.

    ``files`` collects all of them, to limit files that include each other many times.
    """
    if path.resolve() in chain:
        raise UserError(f"{path}: base: the files include each other in a circle")
    files.append(path)
    if len(files) > MAX_FILES:
        raise UserError(f"{files[0]}: base: includes more than {MAX_FILES} files")
    content = _parse(path)
    parents = _parents(content.pop("base", []), path)
    included = [layer for parent in parents for layer in _layers(parent, (*chain, path.resolve()), files)]
    # A file with one of these names must not be mistaken for input of the user.
    origin = f"./{path}" if str(path) in (COMMAND_LINE, PYTHON) else str(path)
    return [*included, (origin, content)]


def _sections(sections: Any, origin: str) -> dict[str, dict[str, Any]]:
    if not isinstance(sections, dict) or not all(isinstance(values, dict) for values in sections.values()):
        raise UserError(f"{origin}: {METHODS}: expected settings by algorithm: '*_upcsc': {{loss_form: reference}}")
    for pattern, values in sections.items():
        for name in ("algorithm", "extend"):
            if name in values:
                raise UserError(f"{origin}: {METHODS}: {shown(pattern)}: {name} cannot be set for some algorithms only")
    return {str(pattern): values for pattern, values in sections.items()}


def _for_algorithm(raw: Mapping[str, Raw], algorithm: str) -> dict[str, Raw]:
    """``raw`` with the sections that match ``algorithm``; within a file, a section overrides a plain key."""
    chosen = {name: entry for name, entry in raw.items() if name != METHODS}
    for pattern, name, entry in raw[METHODS].value if METHODS in raw else ():
        if fnmatchcase(algorithm, pattern) and (name not in chosen or chosen[name].order <= entry.order):
            chosen[name] = entry
    return chosen


def _parse(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise UserError(f"{path}: no such config file{_nearest_file(path)}")
    return _mapping(documents.read_yaml(path), path)


def _mapping(content: Any, path: Path) -> dict[str, Any]:
    if content is None:
        raise UserError(f"{path}: contains no settings; an interrupted copy may have left it empty")
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected lines of 'key: value', got {type(content).__name__}")
    return {str(name): value for name, value in content.items()}


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, [p.name for p in path.parent.glob("*.yaml")])


def _parents(base: Any, path: Path) -> list[Path]:
    names = [base] if isinstance(base, str) else base
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: base: expected a file name or a list of them, got {shown(base)}")
    folder, packaged = path.parent, config_dir()
    return [
        packaged / name if not (folder / name).exists() and (packaged / name).exists() else folder / name
        for name in names
    ]


def resolve(raw: Mapping[str, Raw]) -> Settings:
    """Check names, types and ranges, and add the defaults."""
    if "extend" in raw:
        where = raw["extend"].where("extend")
        for file in convert(raw["extend"].value, TYPES["extend"], where):
            load_extension(file, where, named=raw["extend"].origin in (COMMAND_LINE, PYTHON))
    named = raw.get("algorithm", Raw(Settings.algorithm, "default"))
    algorithm = convert(named.value, str, named.where("algorithm"))
    method = registry.parse_method(algorithm, named.where("algorithm"))
    raw = _for_algorithm(raw, algorithm)
    options = registry.options_of(method)
    own: dict[str, Any] = {}
    chosen = {name: option.default for name, option in options.items()}
    for name, entry in raw.items():
        if name in KEYS:
            own[name] = _value_of_key(name, entry)
        elif name in options:
            chosen[name] = option_value(options[name], entry.value, entry.where(name))
        else:
            raise UserError(_unknown(name, entry.where(name), algorithm, options))
    own["step"] = _step(method.base, own.get("step"), raw)
    if own.get("use_cat") is False:
        _check_use_cat(method, raw["use_cat"].where("use_cat"))
    _check_cutout(own.get("cutout", Settings.cutout), own.get("img_size", Settings.img_size), raw)
    if own.get("dataset_name"):
        where = raw["dataset_name"].where("dataset_name")
        check_name(own["dataset_name"], where)
        if own.get("dataset") != "folder":
            raise UserError(f"{where}: only applies to your own images (dataset: folder)")
    origins = {name: entry.origin for name, entry in raw.items()}
    settings = Settings(**own, base=method.base, plugins=method.plugins, options=chosen, origins=origins)
    _check_weights(settings)
    return settings


def _value_of_key(name: str, entry: Raw) -> Any:
    where, about = entry.where(name), KEYS[name].metadata
    value = convert(entry.value, TYPES[name], where)
    check_choice(value, about["choices"], where)
    check_range(value, where, **{limit: about[limit] for limit in LIMITS})
    for word in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
        if about["check"] and word:
            about["check"](word, where)
    return value


def _step(base: str, requested: str | None, raw: Mapping[str, Raw]) -> str:
    steps = registry.steps_of(base)
    if requested is None:
        return steps[0]
    if requested not in steps:
        supported = ", ".join(name for name in registry.ALGORITHMS.names() if requested in registry.steps_of(name))
        raise UserError(
            f"{raw['step'].where('step')}: {base} has no {requested} step; use step: {steps[0]}, or one of the "
            f"algorithms that have it: {supported}"
        )
    return requested


def _check_use_cat(method: registry.Method, where: str) -> None:
    if method.plugins and registry.ALGORITHMS.get(method.base, where).weak_needs_cat:
        raise UserError(
            f"{where}: with use_cat false, USB's {method.base} computes the weak view without gradient, which plug-ins "
            f"need; set use_cat to true"
        )


def _check_cutout(cutout: int, img_size: int, raw: Mapping[str, Raw]) -> None:
    """Raise an error for a cutout that covers the whole strong view wherever its centre is drawn."""
    if cutout >= 2 * img_size:
        name = "cutout" if "cutout" in raw else "img_size"
        where = raw[name].where(name) if name in raw else name
        raise UserError(
            f"{where}: a cutout of {cutout} pixels covers all of every strong view of {img_size} pixels; use "
            f"at most {2 * img_size - 1} pixels"
        )


def _check_weights(settings: Settings) -> None:
    """Raise an error if pretrained weights are required but do not exist, or are given but not used."""
    where, path = settings.where("pretrained"), settings.pretrain_path
    if settings.pretrained and not path and not registry.NETS.get(settings.net, settings.where("net")).weights:
        raise UserError(
            f"{where}: there are no pretrained weights for {settings.net}; pass a file with --pretrain_path, or set it "
            f"to false"
        )
    if path and not settings.pretrained:
        raise UserError(
            f"{settings.where('pretrain_path')}: is not used with pretrained: false; set --pretrained true, or drop it"
        )


def _unknown(name: str, where: str, algorithm: str, options: Iterable[str]) -> str:
    others = registry.owners_of(name)
    if others:
        return f"{where}: not an option of {algorithm}; it belongs to {', '.join(others)}"
    return f"{where}: no such setting{did_you_mean(name, [*KEYS, *options])} (list all: ssdg train --help)"


def load_settings(config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """Load ``config`` (a YAML file or None), overridden by ``overrides`` from the command line."""
    return resolve(_raw(config, overrides))


def _raw(config: Path | None, overrides: Mapping[str, Any]) -> dict[str, Raw]:
    raw = read_yaml(find_config(config)) if config is not None else {}
    return raw | {name: Raw(value, COMMAND_LINE) for name, value in overrides.items()}


def load_base_settings(config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """Like :func:`load_settings`, but for the base algorithm without plug-ins, their options and the variant."""
    settings = load_settings(config, overrides)
    dropped = {"variant", *(settings.options.keys() - registry.ALGORITHMS.get(settings.base, "algorithm").options)}
    raw = _raw(config, overrides)
    kept = {name: entry for name, entry in raw.items() if name not in dropped}
    return resolve({**kept, "algorithm": Raw(settings.base, settings.origins["algorithm"])})


def settings_from(**values: Any) -> Settings:
    """Settings from Python, checked like a config file: ``settings_from(dataset="pacs", seed=3)``."""
    return resolve({name: Raw(value, PYTHON) for name, value in values.items()})


def with_values(settings: Settings, **values: Any) -> Settings:
    """A copy of ``settings`` with some values replaced and checked."""
    raw = {name: Raw(value, settings.origins.get(name, "default")) for name, value in settings.flat().items()}
    raw.update({name: Raw(value, settings.origins.get(name, PYTHON)) for name, value in values.items()})
    return resolve(raw)


def read_resolved(path: Path) -> Settings:
    """Read the settings from the ``config.yaml`` of a run."""
    return resolve(read_record(path))


def dump(settings: Settings) -> str:
    """Convert ``settings`` to YAML, which :func:`read_resolved` can read."""
    return yaml.dump(settings.flat(), Dumper=_Dumper, sort_keys=False, default_flow_style=None)
