"""Files passed with ``--extend``: they add plug-ins, algorithms, datasets or networks through the registry.

A file declares what it brings with :func:`semilearn_ext.extend.register`. Its content is part of the experiment: its
hash goes into the config hash, and a copy into the run folder.

Code is run only if the user has named it, on the command line or in Python. A config file, the record of a run and the
plan of a sweep may come from somebody else: what they name is run only if its content has been named as well, or after
``--trust``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from semilearn_ext import documents
from semilearn_ext.errors import UserError

_loaded: dict[Path, str] = {}
"""The files that have been run, with the hash of what they held then."""
_trust: list[bool] = []
"""Not empty after ``--trust``."""


def trust_files() -> None:
    """From now on, run the code that config files, runs and plans name: ``--trust``."""
    _trust.append(True)


def flags() -> list[str]:
    """What tells another process of this command to run the same code, and no other."""
    return ["--trust"] if _trust else [word for file in _loaded for word in ("--extend", str(file))]


def load_extension(path: str, where: str, *, named: bool = True) -> None:
    """Run the file once per process, and again when its content has changed. Mistakes in it become a UserError.

    Args:
        named: the user has named the file; if not, it has to be one that has been run already, or ``--trust`` is given.
    """
    file = Path(path).expanduser().resolve()
    digest = extension_hash(path, where)
    if _loaded.get(file) == digest or (not named and digest in _loaded.values()):
        return
    if not named and not _trust:
        raise UserError(
            f"{where}: names code, {path}, which is not run unless you ask for it: name the file with --extend, or add "
            f"--trust if you trust whoever wrote it"
        )
    from semilearn_ext import registry

    registry.remove(str(file))
    _loaded.pop(file, None)
    name = f"semilearn_ext_extension_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, GeneratorExit and whatever a file may define are mistakes in it too
        del sys.modules[name]
        registry.remove(str(file))
        if isinstance(error, UserError):
            raise
        reason = " ".join(str(error).split()) or "no message"
        raise UserError(f"{where}: {path}: {type(error).__name__}: {reason}") from error
    _loaded[file] = digest


def extension_hash(path: str, where: str = "extend") -> str:
    """Twelve hexadecimal digits of the file's content."""
    try:
        return hashlib.sha256(documents.read_bytes(Path(path).expanduser())).hexdigest()[:12]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
