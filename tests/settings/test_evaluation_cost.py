"""The cost of evaluations in the paper's configs, counted in forward passes of images."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise

import pytest

from semilearn_ext.engine.averages import STATISTICS_IMAGES
from semilearn_ext.registry import DATASETS
from semilearn_ext.settings import Settings, load_settings
from semilearn_ext.settings.config_files import config_dir, config_names

FORWARD, WITH_GRADIENT = 1, 3
"""A backward pass costs about two forward passes."""
CLASSES = {"pacs": 7, "office_home": 65, "digits_dg": 10, "mini_domainnet": 126}


def step_cost(settings: Settings) -> int:
    """Forward passes of a step per labelled image, with equally many unlabelled images."""
    if settings.step == "reference":
        # Weak views without gradient, labelled ones with, and for FixMatch strong views of all.
        return 2 * FORWARD + (1 if settings.base == "erm" else 3) * WITH_GRADIENT
    # MeanTeacher's teacher processes the weak views; otherwise all views are in one batch.
    return FORWARD + 2 * WITH_GRADIENT if settings.base == "meanteacher" else 3 * WITH_GRADIENT


METHODS = ["fixmatch", "fixmatch_upcsc", "stylematch", "erm", "meanteacher", "freematch", "freematch_upcsc"]
# Those of the paper's benchmarks that name a method.
CONFIGS = [name for name in config_names() if re.search(rf"_({'|'.join(CLASSES)})\.yaml$", name)]


@pytest.mark.parametrize("config", CONFIGS)
def test_evaluations_cost_at_most_a_tenth_of_the_training(config: str) -> None:
    """In every single run: a config trains once per target."""
    settings = load_settings(config_dir() / config, {})
    assert settings.target_domain == "all"
    counts = DATASETS.get(settings.dataset, "dataset").counts
    costs = {target: cost(settings, counts, target) for target in counts}
    shares = {target: evaluations / steps for target, (steps, evaluations) in costs.items()}
    assert max(shares.values()) <= 0.1, shares
    assert min(shares.values()) >= 0.02, "there are too few evaluations for a curve"


def test_all_of_the_papers_configs_are_counted() -> None:
    assert {f"{method}_{dataset}.yaml" for method in METHODS for dataset in CLASSES} <= set(CONFIGS)
    assert {"ablation", "paper_form"} <= {name.partition("/")[0] for name in CONFIGS}


@pytest.mark.parametrize("dataset", CLASSES)
def test_the_curves_of_all_rows_have_common_points(dataset: str) -> None:
    """At every evaluation of a method, all methods that are evaluated more often are evaluated too."""
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
    # A tenth of the images is held out, and a fifth of Digits-DG.
    train = 0.8 if settings.dataset == "digits_dg" else 0.9
    steps = settings.epoch * (int(min(counts[name] for name in sources) * train - labelled) // (batch // 3))
    training = steps * batch * step_cost(settings)
    evaluations = -(-steps // settings.num_eval_iter)
    val = (1 - train) * sum(counts[name] for name in sources)
    images = evaluations * sum(counts.values())
    assert settings.average_eval == "last"
    for average in ("ema", "swa") if settings.average == "both" else (settings.average,):
        images += counts[target] + val + (STATISTICS_IMAGES if average == "swa" else 0)
    return training, images
