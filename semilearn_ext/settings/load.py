"""Defaults < YAML < command line -> one :class:`Settings`.

A YAML file may name others it builds on with ``base: pacs.yaml`` or ``base: [a.yaml, b.yaml]``, relative to
itself; what it says itself wins over what they say.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from semilearn_ext.errors import UserError, did_you_mean
from semilearn_ext.settings.convert import check_choice, check_minimum, convert
from semilearn_ext.settings.methods import CHOICES, check_step, options_of, owners_of
from semilearn_ext.settings.schema import KEYS, TYPES, Settings

COMMAND_LINE = "command line"
# libyaml's safe classes where there are any: ten times as fast, which a sweep of a thousand runs notices.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Raw(NamedTuple):
    """A value as it was written, and where."""

    value: Any
    origin: str

    def where(self, name: str) -> str:
        return f"{self.origin}: {'--' if self.origin == COMMAND_LINE else ''}{name}"


def read_yaml(path: Path, chain: tuple[Path, ...] = ()) -> dict[str, Raw]:
    """The keys of ``path`` on top of those of the files it builds on."""
    if path.resolve() in chain:
        raise UserError(f"{path}: base: the files build on each other in a circle")
    content = _parse(path)
    merged: dict[str, Raw] = {}
    for parent in _parents(content.pop("base", []), path):
        merged.update(read_yaml(parent, (*chain, path.resolve())))
    merged.update({name: Raw(value, str(path)) for name, value in content.items()})
    return merged


def _parse(path: Path) -> dict[str, Any]:
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader) or {}
    except FileNotFoundError:
        raise UserError(f"{path}: no such config file{_nearest_file(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected lines of 'key: value', got a {type(content).__name__}")
    return {str(name): value for name, value in content.items()}


def _nearest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    return did_you_mean(path.name, [p.name for p in path.parent.glob("*.yaml")])


def _parents(base: Any, path: Path) -> list[Path]:
    names = [base] if isinstance(base, str) else base
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: base: expected a file name or a list of them, got {base!r}")
    return [path.parent / name for name in names]


def resolve(raw: Mapping[str, Raw]) -> Settings:
    """Check names, types and ranges, fill in the defaults."""
    if "extend" in raw:
        for file in convert(raw["extend"].value, TYPES["extend"], raw["extend"].where("extend")):
            _import_file(Path(file).expanduser(), raw["extend"].where("extend"))
    named = raw.get("algorithm", Raw(Settings.algorithm, "default"))
    algorithm = convert(named.value, str, named.where("algorithm"))
    options = options_of(algorithm, named.where("algorithm"))
    own: dict[str, Any] = {}
    chosen = {name: option.default for name, option in options.items()}
    for name, entry in raw.items():
        where = entry.where(name)
        if name in KEYS:
            value = convert(entry.value, TYPES[name], where)
            check_choice(value, KEYS[name].metadata["choices"], where)
            check_minimum(value, KEYS[name].metadata["minimum"], where)
            own[name] = value
        elif name in options:
            chosen[name] = convert(entry.value, type(options[name].default), where)
            check_choice(chosen[name], CHOICES.get(name, ()), where)
        else:
            raise UserError(_unknown(name, where, algorithm, options))
    if "step" in own:
        check_step(algorithm, own["step"], raw["step"].where("step"))
    origins = {name: entry.origin for name, entry in raw.items()}
    return Settings(**own, options=MappingProxyType(chosen), origins=MappingProxyType(origins))


def _import_file(path: Path, where: str) -> None:
    """Run a user's file once; what it registers is known from then on."""
    name = f"semilearn_ext_user_{path.stem}"
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{where}: {path}: no such Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UserError(f"{where}: {path}: {type(error).__name__}: {error}") from error


def _unknown(name: str, where: str, algorithm: str, options: Iterable[str]) -> str:
    others = owners_of(name)
    if others:
        return f"{where}: not an option of {algorithm}; it belongs to {', '.join(others)}"
    return f"{where}: no such setting{did_you_mean(name, [*KEYS, *options])} (all of them: train.py --help)"


def load_settings(config: Path | None, overrides: Mapping[str, Any]) -> Settings:
    """``config`` (a YAML file, or none) with ``overrides`` from the command line on top."""
    raw = read_yaml(config) if config is not None else {}
    raw.update({name: Raw(value, COMMAND_LINE) for name, value in overrides.items()})
    return resolve(raw)


def settings_from(**values: Any) -> Settings:
    """Settings from Python, checked like a config file: ``settings_from(dataset="pacs", seed=3)``."""
    return resolve({name: Raw(value, "python") for name, value in values.items()})


def with_values(settings: Settings, **values: Any) -> Settings:
    """``settings`` with some values replaced, checked anew."""
    raw = {name: Raw(value, settings.origins.get(name, "default")) for name, value in settings.flat().items()}
    raw.update({name: Raw(value, settings.origins.get(name, "python")) for name, value in values.items()})
    return resolve(raw)


def read_resolved(path: Path) -> Settings:
    """The ``config.yaml`` that a run wrote."""
    return resolve(read_yaml(path))


def dump(settings: Settings) -> str:
    """``settings`` as YAML that :func:`read_resolved` reads back."""
    return yaml.dump(settings.flat(), Dumper=_Dumper, sort_keys=False, default_flow_style=None)
