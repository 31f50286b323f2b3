"""What evaluating costs in the paper's configs, counted in images that go through the network."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from semilearn_ext.engine.averages import STATISTICS_IMAGES
from semilearn_ext.registry import DATASETS
from semilearn_ext.settings import Settings, load_settings
from semilearn_ext.settings.config_files import config_dir

FORWARD, WITH_GRADIENT = 1, 3
"""A backward pass costs about two forward passes."""
CLASSES = {"pacs": 7, "office_home": 65, "digits_dg": 10, "mini_domainnet": 126}


def step_cost(settings: Settings) -> int:
    """Forward passes of a step per labelled image; as many images are unlabelled."""
    if settings.step == "reference":
        # Weak views without gradient, labelled ones with, and for FixMatch strong views of all.
        return 2 * FORWARD + (1 if settings.base == "erm" else 3) * WITH_GRADIENT
    # The teacher of MeanTeacher sees the weak views; otherwise all views are one batch.
    return FORWARD + 2 * WITH_GRADIENT if settings.base == "meanteacher" else 3 * WITH_GRADIENT


METHODS = ["fixmatch", "fixmatch_upcsc", "stylematch", "erm", "meanteacher", "freematch", "freematch_upcsc"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dataset", CLASSES)
def test_evaluations_cost_at_most_a_tenth_of_the_training(dataset: str, method: str) -> None:
    """A config trains once per target, and all of its runs together are what it costs."""
    settings = load_settings(config_dir() / f"{method}_{dataset}.yaml", {})
    assert settings.target_domain == "all"
    counts = DATASETS.get(dataset, "dataset").counts
    costs = {target: cost(settings, counts, target) for target in counts}
    training, evaluating = (sum(part) for part in zip(*costs.values(), strict=True))
    assert evaluating <= 0.1 * training, evaluating / training
    shares = {target: evaluations / steps for target, (steps, evaluations) in costs.items()}
    assert min(shares.values()) >= 0.02, "so few evaluations make no curve"
    above = {target for target, share in shares.items() if share > 0.1}
    # This run has one evaluation only: the last, of all images, and of the target by the averaged weights too.
    assert above == ({"real"} if (dataset, method) == ("mini_domainnet", "erm") else set())


@pytest.mark.parametrize("dataset", CLASSES)
def test_the_curves_of_all_rows_have_common_points(dataset: str) -> None:
    """Where a row is evaluated, so is every row that is evaluated more often, from whichever file."""
    files = {method: f"{method}_{dataset}.yaml" for method in METHODS}
    every = {method: load_settings(config_dir() / file, {}).num_eval_iter for method, file in files.items()}
    for shared in (f"{dataset}.yaml", f"{dataset}_reference.yaml"):
        assert load_settings(config_dir() / shared, {"algorithm": "erm"}).num_eval_iter == every["erm"]
    ordered = sorted(set(every.values()))
    assert all(longer % shorter == 0 for shorter, longer in pairwise(ordered)), every
    assert every["freematch"] == every["freematch_upcsc"] == every["meanteacher"]
    assert every["fixmatch"] == every["fixmatch_upcsc"] == every["stylematch"]


def cost(settings: Settings, counts: Mapping[str, int], target: str) -> tuple[float, float]:
    """Forward passes of one image in all training steps, and in all evaluations, of a run."""
    batch, sources = settings.batch_size, [name for name in counts if name != target]
    labelled = settings.labels_per_class * CLASSES[settings.dataset]
    # A tenth, or a fifth of the digits, is held out.
    train = 0.8 if settings.dataset == "digits_dg" else 0.9
    steps = settings.epoch * (int(min(counts[name] for name in sources) * train - labelled) // (batch // 3))
    training = steps * batch * step_cost(settings)
    evaluations = -(-steps // settings.num_eval_iter)
    val = (1 - train) * sum(counts[name] for name in sources)
    averages = 2 * (counts[target] + val) + STATISTICS_IMAGES
    return training, evaluations * sum(counts.values()) + averages
