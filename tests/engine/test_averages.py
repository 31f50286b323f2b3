"""Averaged weights equal torch's own, do not affect training, and are part of the checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_multi_avg_fn, update_bn

from semilearn_ext import training
from semilearn_ext.data import views
from semilearn_ext.engine import averages, checkpoint
from semilearn_ext.engine.averages import averaged_tensors, estimate_statistics, statistics_batches
from semilearn_ext.engine.context import make_context
from semilearn_ext.engine.evaluation import top1
from semilearn_ext.errors import UserError
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.semilearn_api import Hook
from semilearn_ext.settings import Settings, config_hash, settings_from

Tiny = Callable[..., Settings]


@pytest.fixture
def tiny(tiny: Tiny) -> Tiny:
    """With averages, as runs have them by default."""
    return lambda **values: tiny(**{"average": settings_from().average, **values})


def build(settings: Settings) -> Any:
    return training.build(make_context(settings))


class Oracle(Hook):
    """torch's averages of the same training."""

    def __init__(self, model: torch.nn.Module, decay: float, first: int) -> None:
        self.ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay), use_buffers=True)
        self.swa = AveragedModel(model, multi_avg_fn=get_swa_multi_avg_fn())
        self.first = first

    def after_train_step(self, algorithm: Any) -> None:
        self.ema.update_parameters(algorithm.model)
        if algorithm.it + 1 >= self.first:
            self.swa.update_parameters(algorithm.model)


@pytest.fixture
def trained(tiny: Tiny) -> tuple[Any, Oracle]:
    """Seven steps of a network with batch norm, of which the last five count for ``swa``."""
    settings = tiny(net="resnet_mini", num_train_iter=7, num_eval_iter=7, average_decay=0.8, average_start=0.3)
    algorithm = build(settings)
    oracle = Oracle(algorithm.model, decay=0.8, first=3)
    algorithm.register_hook(oracle, None, "HIGHEST")
    algorithm.train()
    return algorithm, oracle


def test_averages_and_their_accuracies_equal_those_of_torch(trained: tuple[Any, Oracle]) -> None:
    algorithm, oracle = trained
    assert any("running_var" in name for name, _ in algorithm.model.named_buffers())
    for name, updates in (("ema", 7), ("swa", 5)):
        average, model = algorithm.averages.kept[name], getattr(oracle, name).module
        # The buffers of swa are batch norm's, which are re-estimated.
        expected = averaged_tensors(model) if name == "ema" else list(model.parameters())
        assert average.updates == updates
        assert all(map(torch.equal, average.tensors, expected))
        assert not any(map(torch.equal, average.tensors, averaged_tensors(algorithm.model)))
    data, record = algorithm.context.data, algorithm.metrics[-1]
    batches = [views.plain(data.store[torch.from_numpy(p)], data.view) for p in statistics_batches(algorithm)]
    update_bn(batches, oracle.swa)
    for name in ("ema", "swa"):
        model = getattr(oracle, name).module.eval()
        for images in ("target", "source_val"):
            shown = algorithm.eval_sets[images]
            with torch.no_grad():
                logits = torch.cat([model(x)["logits"] for _, x in shown.share()])
            assert record[f"{images}/top1.{name}"] == top1(logits, shown.labels)


def test_statistics_equal_those_of_update_bn(tiny: Tiny) -> None:
    algorithm = build(tiny(net="resnet_mini", num_train_iter=2))
    algorithm.train()
    data = algorithm.context.data
    reference = copy.deepcopy(algorithm.model)
    batches = [views.plain(data.store[torch.from_numpy(p)], data.view) for p in statistics_batches(algorithm)]
    update_bn(batches, reference)
    momenta = [getattr(module, "momentum", 0) for module in algorithm.model.modules()]
    estimate_statistics(algorithm)
    assert [getattr(module, "momentum", 0) for module in algorithm.model.modules()] == momenta
    buffers = dict(reference.named_buffers())
    for name, value in algorithm.model.named_buffers():
        assert torch.equal(value, buffers[name]), name


@pytest.mark.parametrize("algorithm", ["fixmatch", "supervised"])
def test_statistics_come_from_training_images_of_all_sources(tiny: Tiny, algorithm: str) -> None:
    built = build(tiny(algorithm=algorithm))
    data, batches = built.context.data, statistics_batches(built)
    allowed = data.split.labelled + ([] if algorithm == "supervised" else data.split.unlabelled)
    positions = [int(p) for batch in batches for p in batch]
    assert set(positions) <= set(allowed)
    assert len(set(positions)) == len(positions) <= averages.STATISTICS_IMAGES
    for batch in batches:
        counts = torch.bincount(data.domains[torch.from_numpy(batch)], minlength=3).tolist()
        assert counts == [32, 32, 32]
    repeated = statistics_batches(built)
    assert [batch.tolist() for batch in repeated] == [batch.tolist() for batch in batches]


@pytest.mark.parametrize("algorithm", ["fixmatch", "stylematch", "fixmatch_dgwm", "freematch_upcsc"])
def test_averages_do_not_affect_training(tiny: Tiny, algorithm: str) -> None:
    def train(**values: Any) -> Any:
        built = build(tiny(algorithm=algorithm, num_train_iter=2, num_eval_iter=1, **values))
        built.train()
        return built

    with_averages, without = train(average_eval="every", average_start=0), train(average="none")
    assert "target/top1.swa" in with_averages.metrics[0]
    assert with_averages.model.training
    pairs = ([*built.model.parameters(), *built.model.buffers()] for built in (with_averages, without))
    assert all(map(torch.equal, *pairs))
    for record, expected in zip(with_averages.metrics, without.metrics, strict=True):
        assert {**record, **expected, "seconds": record["seconds"]} == record


def test_averages_are_measured_at_the_last_evaluation_by_default(tiny: Tiny) -> None:
    algorithm = build(tiny(average="ema"))
    algorithm.train()
    averaged = [[name for name in record if "top1." in name] for record in algorithm.metrics]
    assert averaged == [[], ["target/top1.ema", "source_val/top1.ema"]]
    none = build(tiny(average="none"))
    none.train()
    assert none.averages.state() == {}
    assert not any("top1." in name for record in none.metrics for name in record)


def test_swa_is_not_measured_before_it_begins(tiny: Tiny) -> None:
    algorithm = build(tiny(num_eval_iter=1, average_eval="every", average_start=0.5))
    algorithm.train()
    assert ["target/top1.swa" in record for record in algorithm.metrics] == [False, False, True, True]


@pytest.mark.parametrize("steps", [2, 5])
def test_a_resumed_run_has_the_same_averages(
    tiny: Tiny, stop_after: Callable[[Settings, int], None], steps: int, tmp_path: Any
) -> None:
    uninterrupted, resumed = (
        tiny(num_train_iter=7, average_decay=0.8, save_dir=str(tmp_path / name))
        for name in ("uninterrupted", "resumed")
    )
    expected = training.run(uninterrupted).result
    stop_after(resumed, steps)
    assert training.run(resumed).result["top1"] == expected["top1"]
    assert {"ema", "swa"} <= set(expected["top1"])
    after_resume, expected_averages = (
        checkpoint.load(RunFolder(run_path(settings)).checkpoint_file(7))["averages"]
        for settings in (resumed, uninterrupted)
    )
    for name in ("ema", "swa"):
        assert after_resume[name]["updates"] == expected_averages[name]["updates"]
        assert all(map(torch.equal, after_resume[name]["tensors"], expected_averages[name]["tensors"]))


def test_a_run_that_began_without_an_average_cannot_get_one(
    tiny: Tiny, stop_after: Callable[[Settings, int], None]
) -> None:
    stop_after(tiny(average="swa"), 2)
    with pytest.raises(UserError, match="average: the run was started without ema"):
        training.run(tiny(average="both"))
    assert "ema" not in training.run(tiny(average="none")).result["top1"]


def test_averages_do_not_change_the_identity_of_an_experiment(tiny: Tiny) -> None:
    assert config_hash(tiny(average="none", average_eval="every")) == config_hash(tiny())
    assert config_hash(tiny(average_decay=0.99)) != config_hash(tiny())


def test_a_checkpoint_of_another_version_is_one_line(tiny: Tiny, stop_after: Callable[[Settings, int], None]) -> None:
    settings = tiny()
    stop_after(settings, 2)
    path = checkpoint.checkpoint_files(run_path(settings))[-1]
    state = checkpoint.load(path)
    del state["averages"]
    checkpoint.save(run_path(settings), state)
    with pytest.raises(UserError, match="the checkpoint has no 'averages', so it was written by another version"):
        training.run(settings)
