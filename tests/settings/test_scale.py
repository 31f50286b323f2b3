"""A run is at the paper's scale only if every scientific setting equals that of the packaged config of its row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from semilearn_ext.settings import load_settings
from semilearn_ext.settings.scale import scale_of

PACS_ROWS = [
    "erm_pacs.yaml",
    "fixmatch_pacs.yaml",
    "fixmatch_upcsc_pacs.yaml",
    "freematch_pacs.yaml",
    "meanteacher_pacs.yaml",
    "stylematch_upcsc_pacs.yaml",
    "ablation/fixmatch_upcsc_top1_proxy_pacs.yaml",
]


@pytest.mark.parametrize("name", PACS_ROWS)
@pytest.mark.parametrize("labels", [10, 5])
def test_packaged_configs_are_at_the_papers_scale(name: str, labels: int) -> None:
    values = {"labels_per_class": labels, "target_domain": "sketch", "seed": 4, "splits": "published"}
    assert scale_of(load_settings(Path(name), values)) == "paper"


@pytest.mark.parametrize(
    "change",
    [
        {"img_size": 96},
        {"epoch": 3},
        {"num_train_iter": 100},
        {"labels_per_class": 20},
        {"lr": 0.01},
        {"lr_plugin": 0.001},
        {"step": "usb"},
        {"loss_form": "paper"},
        {"classifier_bias": True},
        {"plugin_weight": 0.5},
        {"test_view": "squash"},
        {"pretrained": False},
        {"pretrain_path": "weights.pth"},
        {"split_file": "mine.json"},
        {"p_cutoff": 0.9},
    ],
)
def test_any_changed_setting_is_at_reduced_scale(change: dict[str, Any]) -> None:
    assert scale_of(load_settings(Path("fixmatch_upcsc_pacs.yaml"), change)) == "reduced"


def test_the_papers_form_of_the_loss_is_at_reduced_scale() -> None:
    assert scale_of(load_settings(Path("paper_form/fixmatch_upcsc_pacs.yaml"), {})) == "reduced"


def test_a_dataset_that_is_not_in_the_paper_is_at_reduced_scale() -> None:
    assert scale_of(load_settings(Path("fixmatch_digits_mini.yaml"), {})) == "reduced"
