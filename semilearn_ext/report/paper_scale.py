"""How the runs of an experiment differ from the scale of the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semilearn_ext.report import paper_numbers

PAPER_SETTINGS = {"net": "resnet18", "img_size": 224, "epoch": 20}
"""The settings that determine whether a run is at the paper's scale, besides the benchmark and the labels."""
_NAMES = {"net": "network", "img_size": "pixels", "epoch": "epochs"}


def scale_of(config: Mapping[str, Any], dataset: str, labels: int) -> str:
    """``paper``, or how the runs differ from those of the paper: ``reduced: 96 pixels, not 224; 3 epochs, not 20``."""
    differ = [
        f"{config[name]} {_NAMES[name]}, not {value}"
        if name != "net"
        else f"{_NAMES[name]} {config[name]}, not {value}"
        for name, value in PAPER_SETTINGS.items()
        if name in config and config[name] != value
    ]
    if config.get("num_train_iter"):
        differ.append(f"{config['num_train_iter']} steps in all")
    if config.get("pretrain_path"):
        differ.append(f"weights {config['pretrain_path']}")
    if dataset not in paper_numbers.dataset_order():
        differ.insert(0, "another benchmark")
    if labels not in (10, 5):
        differ.append(f"{labels} labels per class, not 10 or 5")
    return f"reduced: {'; '.join(differ)}" if differ else "paper"
