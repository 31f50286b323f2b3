"""The config files that come with the package, found by name from any folder.

They are in ``config/ssdg`` of the repository; an installed package contains them as ``semilearn_ext/config/ssdg``.
"""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.errors import UserError, did_you_mean

_PACKAGE = Path(__file__).parents[1]


def config_dir() -> Path:
    installed = _PACKAGE / "config" / "ssdg"
    return installed if installed.is_dir() else _PACKAGE.parent / "config" / "ssdg"


def config_names() -> list[str]:
    """Names of all packaged configs, as accepted by :func:`find_config`: ``pacs.yaml``, ``ablation/…``."""
    return sorted(path.relative_to(config_dir()).as_posix() for path in config_dir().rglob("*.yaml"))


def find_config(name: str | Path) -> Path:
    """The config file ``name``: an existing path, or the packaged config of that name."""
    for path in (Path(name), config_dir() / name):
        if path.exists():
            return path
    nearby = [path.as_posix() for path in Path(name).parent.glob("*.yaml")]
    hint = did_you_mean(Path(name).as_posix(), [*nearby, *config_names()])
    raise UserError(f"{name}: no such config file{hint} (packaged configs: ssdg list configs)")
