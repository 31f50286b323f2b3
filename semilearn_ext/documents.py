"""Read untrusted JSON and YAML with limits, so that no file can hang a command, exhaust its memory or crash it.

Only regular files up to a maximum size are read (a pipe would block, and a device never ends). The nesting of JSON and
YAML is limited, as is the expansion of YAML aliases. Every problem is a UserError that names the file.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from semilearn_ext.errors import UserError, shown

MEGABYTE = 2**20
YAML_BYTES = MEGABYTE
_DEPTH, _NODES = 20, 100_000
# libyaml's safe classes, if available, are ten times as fast, which matters for a sweep of a thousand runs.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_bytes(path: Path, limit: int = 16 * MEGABYTE, *, follow: bool = True) -> bytes:
    """The content of a regular file of at most ``limit`` bytes.

    Args:
        follow: whether to follow a symbolic link. Records of runs are read without following links, because a link in
            a run from somebody else could lead to any of the user's files.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise UserError(f"{path}: cannot be read: no such file") from None
    except OSError as error:
        reason = "it is a symbolic link" if error.errno == errno.ELOOP and not follow else error.strerror
        raise UserError(f"{path}: cannot be read: {reason}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path}: cannot be read: not a regular file")
        if status.st_size > limit:
            raise UserError(f"{path}: cannot be read: larger than {limit / MEGABYTE:g} MB")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            # Python allocates what it is asked for, and tables read thousands of files. Those in /proc have no size.
            return file.read(min(limit, status.st_size or MEGABYTE))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)


def read_text(path: Path, limit: int = 16 * MEGABYTE, *, follow: bool = True) -> str:
    return decoded(read_bytes(path, limit, follow=follow), str(path))


def decoded(content: bytes, where: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: cannot be read: not UTF-8 text ({error.reason} at byte {error.start})") from None


def read_json(path: Path, limit: int = 16 * MEGABYTE, *, follow: bool = True) -> Any:
    return parse_json(read_bytes(path, limit, follow=follow), str(path))


def parse_json(content: bytes | str, where: str) -> Any:
    """Parse a JSON text. Integers must not be larger than the largest float. A duplicate name is an error."""
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        has_long_number = re.search(r"\d{300}", text) is not None
        return (_BOUNDED if has_long_number else _DECODER).decode(text)
    except RecursionError:
        raise UserError(f"{where}: cannot be read: nested too deeply") from None
    except ValueError as error:
        raise UserError(f"{where}: cannot be read: not valid JSON ({error})") from None


def _bounded_int(digits: str) -> int:
    if len(digits) > 300:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError(f"the name {shown(_first_repeated([name for name, _ in pairs]))} is given twice")
    return values


def _first_repeated(names: Sequence[str]) -> str:
    """The first name that occurs more than once, in linear time: a file may have a million names."""
    counts = Counter(names)
    return next(name for name in names if counts[name] > 1)


# Creating a decoder for every text takes as long as reading a small one.
_DECODER = json.JSONDecoder(object_pairs_hook=_without_repeats)
_BOUNDED = json.JSONDecoder(object_pairs_hook=_without_repeats, parse_int=_bounded_int)


def read_yaml(path: Path, *, follow: bool = True) -> Any:
    return parse_yaml(read_text(path, YAML_BYTES, follow=follow), str(path))


def parse_yaml(text: str, where: str) -> Any:
    """Parse a YAML text. A duplicate key is an error, because one of its values would be lost, and so is a number that
    YAML 1.1 reads differently than a reader would: 010 is 8, and 1:30 is 90."""
    try:
        _check_growth(text)
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise UserError(f"{where}: not valid YAML: {' '.join(str(error).split())}") from None
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:  # impossible dates, '!!bool x'
        raise UserError(f"{where}: not valid YAML: a value cannot be read ({error})") from None


def _check_growth(text: str) -> None:
    """Raise an error for deep nesting, which crashes libyaml's composer, and for aliases that expand too much."""
    sizes: list[int] = [0]
    anchors: list[str | None] = [None]
    size_of: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=_SafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size = size_of[anchors.pop()] = sizes.pop()
            sizes[-1] += size
        elif isinstance(event, yaml.AliasEvent):
            sizes[-1] += size_of.get(event.anchor, _NODES if event.anchor in anchors else 1)
        elif isinstance(event, yaml.ScalarEvent):
            sizes[-1] += 1
        if len(sizes) > _DEPTH:
            raise yaml.YAMLError(f"nested more than {_DEPTH} levels deep")
        if sizes[-1] > _NODES:
            raise yaml.YAMLError(f"more than {_NODES} values, aliases included")


class _Loader(_SafeLoader):
    """The safe loader, which rejects duplicate keys and numbers that are not decimal."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            raise yaml.YAMLError(f"the key {shown(_first_repeated(keys))} is given twice")
        return super().construct_mapping(node, deep)

    def construct_number(self, node: Any) -> Any:
        if not re.fullmatch(r"[-+]?(0|[1-9]\d*|\d*\.\d*([eE][-+]?\d+)?|\.(inf|Inf|INF|nan|NaN|NAN))", node.value):
            raise yaml.YAMLError(
                f"{shown(node.value)} in line {node.start_mark.line + 1} is not a decimal number; write it as one, or "
                f"put it in quotes if it is a name"
            )
        if re.match(r"[-+.0]*[1-9]", node.value) and not float(node.value):
            raise yaml.YAMLError(f"{shown(node.value)} in line {node.start_mark.line + 1} is too small for a number")
        is_int = node.tag == "tag:yaml.org,2002:int"
        return self.construct_yaml_int(node) if is_int else self.construct_yaml_float(node)


for _kind in ("int", "float"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_kind}", _Loader.construct_number)
