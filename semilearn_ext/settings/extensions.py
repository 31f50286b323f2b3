"""Load files passed with ``--extend``, which add plug-ins, algorithms, datasets or networks to the registry.

A file declares them with :func:`semilearn_ext.extend.register`. Its content is part of the experiment: its hash is part
of the config hash, and a copy is saved in the run folder.

A file is run only if the user has passed it on the command line or in Python. Config files, the records of runs and the
plans of sweeps may come from somebody else: a file that they refer to is run only if the user has passed a file with
the same content, or ``--trust``.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from semilearn_ext import documents
from semilearn_ext.errors import UserError

_loaded: dict[Path, str] = {}
"""The files that have been run, with the hash of their content at that time."""
_trust: list[bool] = []
"""Not empty after ``--trust``."""


def trust_files() -> None:
    """From now on, run extensions that config files, runs and plans refer to (``--trust``)."""
    _trust.append(True)


def flags() -> list[str]:
    """Command-line options with which another process runs the same extensions, and no others."""
    return ["--trust"] if _trust else [word for file in _loaded for word in ("--extend", str(file))]


def load_extension(path: str, where: str, *, named: bool = True) -> None:
    """Run the file once per process, and again if its content has changed. Errors in it become a UserError.

    Args:
        named: whether the user has passed the file. Otherwise it is run only with ``--trust``, unless a file with the
            same content has already been run.
    """
    file = Path(path).expanduser().resolve()
    digest = extension_hash(path, where)
    if _loaded.get(file) == digest or (not named and digest in _loaded.values()):
        return
    if not named and not _trust:
        raise UserError(
            f"{where}: refers to the Python file {path}, which is not run by default; pass it with --extend, or add "
            f"--trust if you trust its author"
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
    """Twelve hexadecimal digits of the hash of the file."""
    try:
        return hashlib.sha256(documents.read_bytes(Path(path).expanduser())).hexdigest()[:12]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
