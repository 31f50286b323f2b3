"""Decide whether a run is at the paper's scale: all its scientific settings equal those of the packaged config."""

from __future__ import annotations

from fnmatch import fnmatchcase

from semilearn_ext import registry
from semilearn_ext.settings.config_files import config_dir, config_names
from semilearn_ext.settings.fingerprint import scientific
from semilearn_ext.settings.load import Raw, read_yaml, resolve
from semilearn_ext.settings.schema import Settings

PAPER, REDUCED = "paper", "reduced"
LABELS = (10, 5)
"""Labels per class in the paper's tables."""


def scale_of(settings: Settings) -> str:
    """``paper`` or ``reduced``.

    The choice between the paper's label splits does not matter, but weights other than torchvision's, a split file or
    extensions make a run ``reduced``.
    """
    own_files = (settings.pretrain_path, settings.split_file, settings.extend)
    if not registry.DATASETS.get(settings.dataset, "dataset").in_paper or any(own_files):
        return REDUCED
    if settings.labels_per_class not in LABELS:
        return REDUCED
    given = _compared(settings)
    return PAPER if any(_compared(config) == given for config in shipped(settings)) else REDUCED


def shipped(settings: Settings) -> list[Settings]:
    """The packaged configs for this dataset and method, including the paper's ablations."""
    general = f"{settings.dataset}{'_reference' if 'reference' in registry.steps_of(settings.base) else ''}.yaml"
    configs = [resolve({**read_yaml(config_dir() / general), "algorithm": Raw(settings.algorithm, "method")})]
    ablations = [name for name in config_names() if fnmatchcase(name, f"ablation/*_{settings.dataset}.yaml")]
    configs += [resolve(read_yaml(config_dir() / name)) for name in ablations]
    return [config for config in configs if config.algorithm == settings.algorithm]


def _compared(settings: Settings) -> dict[str, object]:
    return {name: value for name, value in scientific(settings).items() if name not in ("labels_per_class", "splits")}
