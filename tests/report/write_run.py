"""Write the folder of an artificial finished run, so that the expected tables can be computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semilearn_ext import files
from semilearn_ext.registry import DATASETS, method_title
from semilearn_ext.report.methods import MethodId
from semilearn_ext.runs.folder import RunFolder, RunName
from semilearn_ext.runs.result import FORMAT


def domains(dataset: str) -> tuple[str, ...]:
    return DATASETS.get(dataset, "test").domains


def write_run(root: Path, accuracy: float, **fields: Any) -> Path:
    """A finished run with ``accuracy`` percent. Keywords: any field of the result, ``config``, ``epochs``, ``more``
    (further metrics of every evaluation)."""
    config, epochs, more = fields.pop("config", {}), fields.pop("epochs", (1.0, 2.0, 3.0)), fields.pop("more", {})
    records = [
        {
            "iteration": int(10 * epoch),
            "epoch": epoch,
            "target/top1": max(0.0, accuracy / 100 - (epochs[-1] - epoch) / 10),
            "source_val/top1": 0.9,
            "unlabeled/top1": 0.8,
            "unlabeled/uus_rate": 0.1 * epoch,
            "unlabeled/inclusion_rate": 0.7,
            **more,
            "seconds": 4 * epoch,
        }
        for epoch in epochs
    ]
    result = {
        "format": FORMAT,
        "dataset": "digits_mini",
        "labels_per_class": 10,
        "base": "fixmatch",
        "plugins": [],
        "variant": "",
        "step": "usb",
        "options": {},
        "target_domain": "pen",
        "seed": 1,
        "iterations": 30,
        "top1": {"last": accuracy / 100, "source_val": (accuracy - 1) / 100, "oracle": (accuracy + 1) / 100},
        "metrics": records[-1],
        "seconds": 12.0,
        "version": "0.1.0",
        "scale": "reduced",
        **fields,
    }
    method = MethodId(result["base"], tuple(result["plugins"]), result["variant"])
    result.setdefault("title", method_title(method.base, method.plugins, method.variant))
    result.setdefault("config_hash", f"of {method.name} {result['labels_per_class']} {result['dataset']}")
    name = RunName(result["dataset"], result["labels_per_class"], method.name, result["target_domain"], result["seed"])
    folder = RunFolder(root / name.path)
    folder.path.mkdir(parents=True)
    files.write_json(folder.result_file, result, flush=False)  # thousands of runs, each flushed, take minutes
    algorithm = "_".join((method.base, *method.plugins))
    named = {"algorithm": algorithm, "dataset": result["dataset"], "lr": 0.03, "save_dir": str(root)}
    folder.config_file.write_text(json.dumps({**named, **config}))
    environment = {"git": "c0ffee", "packages": {"torch": "2.11.0", "numpy": "2.4.6"}}
    files.write_json(folder.environment_file, environment, flush=False)
    files.write_json(folder.split_file, {"train_x": [["a", 0, "print"]]}, flush=False)
    folder.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder.path
