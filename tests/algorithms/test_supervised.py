"""USB's supervised training never opens an unlabelled image."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from semilearn_ext import training
from semilearn_ext.data.experiment import load_data
from semilearn_ext.errors import UserError
from semilearn_ext.settings import Settings
from tests.image_trees import write_images

Tiny = Callable[..., Settings]


@pytest.mark.parametrize("cache", ["memmap", "none"])
def test_supervised_training_ignores_corrupt_unlabelled_images(cache: str, tiny: Tiny, tmp_path: Path) -> None:
    """All unlabelled files are overwritten with garbage: supervised training works, and FixMatch fails."""
    write_images(
        tmp_path / "mine", [f"{domain}/{label}" for domain in "abcd" for label in "xy"], count=12, ending="png"
    )
    own = {"dataset": "folder", "data_dir": str(tmp_path / "mine"), "target_domain": "a", "img_size": 16}
    values = {**own, "labels_per_class": 2, "batch_size": 3, "cache": cache, "cache_dir": str(tmp_path / "cache")}
    data = load_data(tiny(algorithm="supervised", **values))
    for position in data.split.unlabelled:
        (tmp_path / "mine" / data.items[position].name).write_bytes(b"garbage")
    assert len(data.split.unlabelled) > 40
    result = training.run(tiny(algorithm="supervised", **values)).result
    assert result["iterations"] == 4
    with pytest.raises(UserError, match="corrupt or truncated image"):
        training.run(tiny(algorithm="fixmatch", **values))


def test_an_existing_cache_is_used(tiny: Tiny, tmp_path: Path) -> None:
    write_images(tmp_path / "mine", [f"{domain}/{label}" for domain in "abcd" for label in "xy"], count=6, ending="png")
    own = {"dataset": "folder", "data_dir": str(tmp_path / "mine"), "target_domain": "a", "img_size": 16}
    values = {**own, "labels_per_class": 1, "batch_size": 3, "cache_dir": str(tmp_path / "cache")}
    assert type(load_data(tiny(algorithm="supervised", **values)).store).__name__ == "DecodedImages"
    assert not list((tmp_path / "cache").rglob("*.uint8"))
    load_data(tiny(algorithm="fixmatch", **values))
    assert type(load_data(tiny(algorithm="supervised", **values)).store).__name__ == "CachedImages"
