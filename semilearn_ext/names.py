"""Names that become folders and files: one check of them all."""

from __future__ import annotations

import re

from semilearn_ext.errors import UserError, shown

LONGEST = 100
_RULE = "names consist of letters, digits, '_', '-' and '.'"


def check_name(name: str, where: str) -> str:
    """``name`` if it consists of letters, digits, ``_``, ``-`` and ``.``, does not begin with a dot, and is at most 100
    characters long; else a UserError."""
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise UserError(f"{where}: {shown(name)}: {_RULE}, and do not begin with '.' or '-'")
    return _check_length(name, where)


def check_folder_name(name: str, where: str) -> str:
    """``name`` if it may be the name of an existing folder, such as that of a domain: spaces and other characters are
    allowed, but none that lead elsewhere or drive a terminal."""
    if not name.strip() or name.startswith(".") or re.search(r"[/\\\0-\x1f\x7f]", name):
        raise UserError(f"{where}: {shown(name)} cannot be the name of a folder; rename it")
    return _check_length(name, where)


def _check_length(name: str, where: str) -> str:
    if len(name) > LONGEST:
        raise UserError(
            f"{where}: {shown(name)}: {len(name)} characters are too long for a name; use at most {LONGEST}"
        )
    return name
