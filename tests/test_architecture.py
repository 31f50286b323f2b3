"""The rooms of the house: what may import what. A room imports from rooms to its left only."""

from __future__ import annotations

import ast
from pathlib import Path

import semilearn_ext

ROOT = Path(semilearn_ext.__file__).parent
ORDER = [
    *("errors", "files", "settings", "runs", "data", "usb", "nets", "losses", "plugins", "engine", "algorithms"),
    *("training", "plan", "listing", "report", "analysis", "bench", "commands", "__main__"),
]
TORCH_FREE = {"errors", "files", "settings", "runs", "listing", "report", "commands", "__main__"}
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


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def files() -> list[Path]:
    return [path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py"]


def test_every_module_has_a_room() -> None:
    assert {room(path) for path in files()} <= set(ORDER)


def test_rooms_import_only_from_the_left() -> None:
    for path in files():
        # What a command imports inside a function is imported when it is called; the command line may do that.
        for name in imports(path, top_level_only=room(path) == "commands"):
            parts = name.split(".")
            if parts[0] == "semilearn_ext" and len(parts) > 1 and parts[1] in ORDER:
                assert ORDER.index(parts[1]) <= ORDER.index(room(path)), f"{path.name} imports {name}"


def test_light_rooms_do_not_import_torch() -> None:
    for path in files():
        if room(path) in TORCH_FREE:
            heavy = {name.split(".")[0] for name in imports(path, top_level_only=True)} & HEAVY
            assert not heavy, f"{path} imports {heavy}"


def test_usb_is_imported_in_one_place() -> None:
    for path in files():
        if room(path) != "usb":
            assert not {name for name in imports(path, top_level_only=False) if name.split(".")[0] == "semilearn"}, path
