"""What evaluating costs in the paper's configs, counted in images that go through the network."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from semilearn_ext.engine.averages import STATISTICS_IMAGES
from semilearn_ext.registry import DATASETS
from semilearn_ext.settings import Settings, load_settings
from semilearn_ext.settings.config_files import config_dir

FORWARD, WITH_GRADIENT = 1, 3
"""A backward pass costs about two forward passes."""
CLASSES = {"pacs": 7, "office_home": 65, "digits_dg": 10, "mini_domainnet": 126}


@pytest.mark.parametrize("method", ["fixmatch", "fixmatch_upcsc", "stylematch"])
@pytest.mark.parametrize("dataset", CLASSES)
def test_evaluations_cost_at_most_a_tenth_of_the_training(dataset: str, method: str) -> None:
    settings = load_settings(config_dir() / f"{method}_{dataset}.yaml", {})
    counts = DATASETS.get(dataset, "dataset").counts
    for target in counts:
        training, evaluating = cost(settings, counts, target)
        assert evaluating <= 0.1 * training, (target, evaluating / training)
        assert evaluating >= 0.02 * training, "so few evaluations make no curve"


def cost(settings: Settings, counts: Mapping[str, int], target: str) -> tuple[float, float]:
    """Forward passes of one image in all training steps, and in all evaluations, of a run."""
    batch, sources = settings.batch_size, [name for name in counts if name != target]
    labelled = settings.labels_per_class * CLASSES[settings.dataset]
    # A tenth, or a fifth of the digits, is held out.
    train = 0.8 if settings.dataset == "digits_dg" else 0.9
    steps = settings.epoch * (int(min(counts[name] for name in sources) * train - labelled) // (batch // 3))
    # The reference step of FixMatch: weak views without gradient, labelled and strong views with.
    training = steps * (2 * batch * FORWARD + 3 * batch * WITH_GRADIENT)
    evaluations = -(-steps // settings.num_eval_iter)
    val = (1 - train) * sum(counts[name] for name in sources)
    averages = 2 * (counts[target] + val) + STATISTICS_IMAGES
    return training, evaluations * sum(counts.values()) + averages
