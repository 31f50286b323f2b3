"""The content of an evaluation's record, and that evaluations do not affect training."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import wandb

from semilearn_ext import training
from semilearn_ext.engine import evaluation
from semilearn_ext.engine.context import make_context
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.confidence import confidence_mask
from semilearn_ext.runs.folder import RunFolder, run_path
from semilearn_ext.settings import Settings

Tiny = Callable[..., Settings]


def build(settings: Settings) -> Any:
    return training.build(make_context(settings))


def test_a_record_contains_the_values_that_tables_and_curves_need(tiny: Tiny) -> None:
    settings = tiny(num_eval_iter=3, num_train_iter=4)
    training.run(settings)
    records = RunFolder(run_path(settings)).read_metrics()
    assert [record["iteration"] for record in records] == [3, 4]
    assert {
        *("iteration", "epoch", "seconds", "train/sup_loss", "train/unsup_loss", "source_val/top1", "target/top1"),
        *("unlabeled/top1", "unlabeled/keep_rate", "unlabeled/kept_top1", "lr/backbone", "lr/classifier"),
    } <= set(records[0])


def test_accuracies_equal_a_plain_loop(tiny: Tiny) -> None:
    algorithm = build(tiny(p_cutoff=0.11, eval_batch_size=77))
    algorithm.train()
    data, record = algorithm.context.data, algorithm.metrics[-1]
    algorithm.model.eval()
    images = data.store.float() / 255 * 2 - 1
    with torch.no_grad():
        prob = algorithm.model(images)["logits"].softmax(1)
    correct = prob.argmax(1) == data.labels
    kept = [p for p in data.split.unlabelled if prob[p].max() >= 0.11]
    assert record["target/top1"] == pytest.approx(correct[data.split.target].float().mean().item())
    assert record["source_val/top1"] == pytest.approx(correct[data.split.source_val].float().mean().item())
    assert record["unlabeled/keep_rate"] == pytest.approx(len(kept) / len(data.split.unlabelled))
    assert record["unlabeled/kept_top1"] == pytest.approx(correct[kept].float().mean().item())


@pytest.mark.parametrize("name", ["fixmatch", "freematch", "flexmatch", "softmatch", "adamatch", "dash", "comatch"])
def test_computing_the_confidence_mask_does_not_change_the_state(name: str, tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm=name, **({"num_wu_iter": 2} if name == "dash" else {})))
    if name == "dash":
        algorithm.warmup()
    algorithm.train()
    before = algorithm.state(4)
    logits = torch.randn(len(algorithm.context.data.split.unlabelled), 10) * 5
    weight = confidence_mask(algorithm, logits, torch.randn(50, 10) * 5)
    assert weight is not None
    assert weight.shape == (len(logits),)
    assert 0 <= weight.min() <= weight.max() <= 1
    after = algorithm.state(4)
    for part in ("hooks", "algorithm"):
        assert str(before["processes"][0][part]) == str(after["processes"][0][part])


def test_a_base_without_a_threshold_records_no_keep_rate(tiny: Tiny) -> None:
    algorithm = build(tiny(algorithm="meanteacher"))
    algorithm.train()
    assert algorithm.metrics[-1]["unlabeled/keep_rate"] is None


def test_evaluations_do_not_change_training(tiny: Tiny) -> None:
    frequent, rare = build(tiny(num_eval_iter=1)), build(tiny(num_eval_iter=4))
    frequent.train()
    torch.manual_seed(1)
    rare.train()
    for parameter, expected in zip(frequent.model.parameters(), rare.model.parameters(), strict=True):
        assert torch.equal(parameter, expected)


def test_nothing_is_measured_between_evaluations(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = evaluation.predict
    monkeypatch.setattr(evaluation, "predict", lambda *arguments: calls.append(1) or original(*arguments))
    build(tiny(num_train_iter=6, num_eval_iter=6, average="both")).train()
    # Source validation, target, unlabelled, labelled; then source validation and target for each average.
    assert len(calls) == 4 + 2 * 2


def test_averaged_weights_are_evaluated_only_on_request(tiny: Tiny) -> None:
    plain, averaged = build(tiny()), build(tiny(eval_with_ema=True, ema_m=0.9))
    assert plain.ema is None
    plain.train()
    averaged.train()
    assert plain.metrics[-1]["source_val/loss"] != averaged.metrics[-1]["source_val/loss"]
    weights = dict(averaged.model.named_parameters())
    assert all(not torch.equal(weights[name], shadow) for name, shadow in averaged.ema.shadow.items())


def test_the_fused_average_equals_usbs_average(tiny: Tiny) -> None:
    from semilearn.core.utils import EMA

    algorithm = build(tiny(eval_with_ema=True, ema_m=0.9))
    reference = EMA(algorithm.model, 0.9)
    reference.register()
    with torch.no_grad():
        for parameter in algorithm.model.parameters():
            parameter.add_(torch.randn_like(parameter))
    reference.update()
    algorithm.ema.update()
    for name, expected in reference.shadow.items():
        torch.testing.assert_close(algorithm.ema.shadow[name], expected)


def test_tensorboard_and_wandb_can_be_used(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    settings = tiny(use_tensorboard=True, use_wandb=True, num_log_iter=1)
    training.run(settings)
    assert list((run_path(settings) / "tensorboard").glob("events.out.tfevents.*"))
    assert list(Path(settings.save_dir).rglob("offline-run-*"))


def test_tensorboard_is_not_written_through_a_link(tiny: Tiny, tmp_path: Path) -> None:
    settings = tiny(use_tensorboard=True)
    training.run(tiny())
    folder = RunFolder(run_path(settings))
    folder.result_file.unlink()
    (tmp_path / "elsewhere").mkdir()
    (folder.path / "tensorboard").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="tensorboard: is a symbolic link"):
        training.run(settings)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_wandb_gets_what_tensorboard_gets(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: dict[int, dict[str, float]] = {}

    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            logged[step] = values

        def finish(self) -> None: ...

    monkeypatch.setattr(wandb, "init", lambda **_: Run())
    settings = tiny(use_wandb=True, num_log_iter=3, num_eval_iter=2)
    training.run(settings)
    records = {record["iteration"]: record for record in RunFolder(run_path(settings)).read_metrics()}
    assert list(logged) == [2, 3, 4]
    for step in (2, 4):
        for name in ("target/top1", "source_val/top1", "train/total_loss"):
            assert logged[step][name] == pytest.approx(records[step][name])


def test_wandb_without_a_key_is_one_line(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise wandb.errors.UsageError("No API key configured.\nUse `wandb login` to log in.")

    monkeypatch.setattr(wandb, "init", init)
    with pytest.raises(UserError, match=r"use_wandb: .*No API key configured\. Use .*WANDB_MODE=offline$"):
        training.run(tiny(use_wandb=True))
    training.run(tiny())


def test_an_invalid_variable_of_wandb_is_one_line(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise ValueError("1 validation error for Settings\nmode\n  Input should be 'online', 'offline' …")

    monkeypatch.setattr(wandb, "init", init)
    with pytest.raises(UserError, match=r"use_wandb: Weights & Biases cannot be used .*mode Input should be 'online'"):
        training.run(tiny(use_wandb=True))
