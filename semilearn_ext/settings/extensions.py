"""Load files passed with ``--extend``, which add plug-ins, algorithms, datasets or networks to the registry.

A file declares them with :func:`semilearn_ext.extend.register`. Its content is part of the experiment: its hash is part
of the config hash, and a copy is saved in the run folder. It must not import other files that are not installed,
because their content is not.

A file is run only if the user has passed it on the command line or in Python. Config files, the records of runs and the
plans of sweeps may come from somebody else: a file that they refer to is run only if the user has passed a file with
the same content, or ``--trust``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from semilearn_ext import documents
from semilearn_ext.errors import UserError

_loaded: dict[Path, str] = {}
"""The files that have been run, with the hash of their content at that time."""
_PREFIX = "semilearn_ext_extension_"
"""The beginning of the names of their modules."""
_loading: list[str] = []
"""The files that are being run."""
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
    # The name depends on the content, so that an edited file is not mistaken for what was loaded before.
    name = f"{_PREFIX}{hashlib.sha256(f'{file} {digest}'.encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{where}: {path}: expected a Python file (.py)")
    module = importlib.util.module_from_spec(spec)
    before = dict(sys.modules)
    sys.modules[name] = module
    _loading.append(str(file))
    try:
        spec.loader.exec_module(module)
        if local := _local_modules(before):
            raise UserError(
                f"{where}: {path}: imports the local module {local[0]!r}, whose content would not be part of the "
                f"experiment; put everything into one file, or install the module as a package"
            )
        if not registry.declared_by(str(file)):
            raise UserError(
                f"{where}: {path}: does not declare a plug-in, algorithm, dataset or network; add @register(spec)"
            )
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, GeneratorExit and whatever a file may define are mistakes in it too
        for imported in (name, *_local_modules(before)):
            sys.modules.pop(imported, None)
        registry.remove(str(file))
        reason = " ".join(str(error).split()) or "no message"
        place = f"{where}: {path}{_line_of(error, file)}"
        if not isinstance(error, UserError):
            raise UserError(f"{place}: {type(error).__name__}: {reason}") from error
        if path in reason or str(file) in reason:
            raise
        raise UserError(f"{place}: {reason}") from None
    finally:
        _loading.pop()
    _loaded[file] = digest


def _line_of(error: BaseException, file: Path) -> str:
    """``:12`` if line 12 of the file raised the error, or called what did. A syntax error names the line itself."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((f":{frame.lineno}" for frame in reversed(frames) if frame.filename == str(file)), "")


def loading() -> str | None:
    """The extension that is being run, or None."""
    return _loading[-1] if _loading else None


def _local_modules(before: Mapping[str, ModuleType]) -> list[str]:
    """The modules imported since ``before`` that belong neither to Python nor to an installed package."""
    known = {id(module) for module in before.values()}  # a module can get a second name, such as __mp_main__
    new = {name: module for name, module in sys.modules.items() if id(module) not in known}
    sources = {name: getattr(module, "__file__", None) for name, module in new.items() if not name.startswith(_PREFIX)}
    folders = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    outside = sorted(
        name
        for name, file in sources.items()
        if isinstance(file, str)
        and file.endswith(".py")
        and not any(Path(file).resolve().is_relative_to(folder) for folder in folders)
    )
    # Packages can be installed elsewhere, for example in development mode. This package may not be installed at all.
    installed = {"semilearn_ext", *importlib.metadata.packages_distributions()} if outside else set()
    return [name for name in outside if name.partition(".")[0] not in installed]


def extension_hash(path: str, where: str = "extend") -> str:
    """Twelve hexadecimal digits of the hash of the file."""
    try:
        return hashlib.sha256(documents.read_bytes(Path(path).expanduser())).hexdigest()[:12]
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
