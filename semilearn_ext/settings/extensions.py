"""Files passed with ``--extend``: they add plug-ins, algorithms, datasets or networks through the registry.

A file declares what it brings with :func:`semilearn_ext.extend.register`. Its content is part of the experiment: its
hash goes into the config hash, and a copy into the run folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from pathlib import Path

from semilearn_ext.errors import UserError

_loaded: dict[Path, str] = {}
"""The files that have been run, with the hash of what they held then."""


def load_extension(path: str, where: str) -> None:
    """Run the file once per process, and again when its content has changed. Mistakes in it become a UserError."""
    file = Path(path).expanduser().resolve()
    digest = extension_hash(path, where)
    if _loaded.get(file) == digest:
        return
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
    except (Exception, SystemExit) as error:
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
        return hashlib.sha256(Path(path).expanduser().read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise UserError(f"{where}: {path}: {error.strerror}") from None
