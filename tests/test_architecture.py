"""The layers of the package: a package imports only from packages to its left."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import semilearn_ext

ROOT = Path(semilearn_ext.__file__).parent
ORDER = [
    *("errors", "files", "documents", "names", "specs", "settings", "runs", "data", "distributed", "semilearn_api"),
    *("nets", "losses", "plugins", "extend", "engine", "algorithms", "usb", "training", "plan", "listing", "report"),
    *("analysis", "bench", "commands", "__main__"),
]
LIGHT_LISTS = {"algorithms", "plugins", "nets", "data"}
"""Packages whose __init__ lists specs and imports nothing heavy; the registry reads these lists."""
TORCH_FREE = {
    *("errors", "files", "documents", "names", "specs", "settings", "runs", "listing", "report"),
    *("commands", "__main__"),
}
HEAVY = {"torch", "torchvision", "semilearn"}


def imports(path: Path, top_level_only: bool) -> set[str]:
    """Dotted names that ``path`` imports."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def package(path: Path) -> str:
    name = path.relative_to(ROOT).parts[0].removesuffix(".py")
    # The registry belongs to the settings, because it knows their valid names.
    return "settings" if name == "registry" else name


def files() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def test_every_module_has_a_layer() -> None:
    assert {package(path) for path in files()} <= set(ORDER)


def test_packages_import_only_from_the_left() -> None:
    for path in files():
        # Commands may import any package inside a function, because it is imported only when it is needed.
        for name in imports(path, top_level_only=package(path) == "commands"):
            parts = name.split(".")
            if path.name == "registry.py" and name.removeprefix("semilearn_ext.") in LIGHT_LISTS:
                continue
            if parts[0] == "semilearn_ext" and len(parts) > 1 and parts[1] in ORDER:
                assert ORDER.index(parts[1]) <= ORDER.index(package(path)), f"{path.name} imports {name}"


def test_light_packages_do_not_import_torch() -> None:
    for path in files():
        if package(path) in TORCH_FREE:
            heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
            assert not heavy, f"{path} imports {heavy}"


def test_the_command_line_and_the_registry_import_no_heavy_package() -> None:
    heavy = "{'torch', 'semilearn', 'pandas', 'matplotlib', 'scipy', 'sklearn'}"
    code = f"import sys, semilearn_ext.__main__, semilearn_ext.registry; print({heavy} & set(sys.modules))"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.stdout == "set()\n", process.stderr


def test_usb_is_imported_in_one_place() -> None:
    for path in files():
        if package(path) != "semilearn_api":
            assert not {name for name in imports(path, top_level_only=False) if name.split(".")[0] == "semilearn"}, path
