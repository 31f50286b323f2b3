"""What is measured at an evaluation, and the hook that measures and records it."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.confidence import would_keep
from semilearn_ext.engine.device import to_device
from semilearn_ext.engine.optim import current_rates
from semilearn_ext.usb import Hook


@torch.inference_mode()
def predict(algorithm: Any, images: PlainImages, out_key: str = "logits", width: int | None = None) -> torch.Tensor:
    """(N, C) logits of all ``images`` in eval mode, or another output of ``width``, by all processes together."""
    context = algorithm.context
    logits = torch.zeros(len(images), width or algorithm.num_classes, device=context.device)
    for part, x in images.share(context.processes.rank, context.processes.world):
        x = to_device(x, context.device, context.settings.channels_last)
        with algorithm.amp_cm():
            logits[part] = algorithm.model(x)[out_key].float()
    return context.processes.sum(logits)


def top1(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.argmax(1) == labels.to(logits.device)).float().mean())


def unlabeled_metrics(algorithm: Any, logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float | None]:
    """Accuracy on all unlabelled source images, the share the base would keep, and the accuracy on those.

    The true labels are used for measuring only. For soft masks the share is the mean weight.
    """
    labels = labels.to(logits.device)
    correct = (logits.argmax(1) == labels).float()
    weight = would_keep(algorithm, logits, predict(algorithm, algorithm.eval_sets["labeled"]))
    metrics: dict[str, float | None] = {"unlabeled/top1": float(correct.mean())}
    if weight is None:
        return {**metrics, "unlabeled/keep_rate": None, "unlabeled/kept_top1": None}
    weight = weight.float()
    return {
        **metrics,
        "unlabeled/keep_rate": float(weight.mean()),
        "unlabeled/kept_top1": _mean_over(correct, weight),
        **observation_metrics(logits.softmax(1), labels, unconfident=(weight < 1).float()),
    }


def observation_metrics(prob: Tensor, labels: Tensor, unconfident: Tensor) -> dict[str, float | None]:
    """The paper's observation (its first table and figure): the share of unlabelled images that are unconfident (UUS
    rate), the share of those whose true class is among their candidates, the classes with a confidence above 1 / C
    (inclusion rate), and how many candidates they have.
    """
    candidates = prob > 1 / prob.shape[1]
    included = candidates.gather(1, labels[:, None])[:, 0].float()
    return {
        "unlabeled/uus_rate": float(unconfident.mean()),
        "unlabeled/inclusion_rate": _mean_over(included, unconfident),
        "unlabeled/candidates": _mean_over(candidates.sum(1).float(), unconfident),
    }


def _mean_over(values: Tensor, weight: Tensor) -> float | None:
    """The weighted mean, or None when nothing has any weight."""
    total = float(weight.sum())
    return float((values * weight).sum()) / total if total else None


def measure(algorithm: Any) -> dict[str, Any]:
    """All accuracies at this moment."""
    algorithm.model.eval()
    if algorithm.settings.eval_with_ema:
        algorithm.ema.apply_shadow()
    sets = algorithm.eval_sets
    logits = {name: predict(algorithm, sets[name]) for name in sets if name != "labeled"}
    metrics: dict[str, Any] = {
        "source_val/top1": top1(logits["source_val"], sets["source_val"].labels),
        "source_val/loss": float(F.cross_entropy(logits["source_val"], sets["source_val"].labels.to(algorithm.device))),
        "target/top1": top1(logits["target"], sets["target"].labels),
    }
    if "unlabeled" in sets:
        metrics |= unlabeled_metrics(algorithm, logits["unlabeled"], sets["unlabeled"].labels)
    if algorithm.settings.eval_with_ema:
        algorithm.ema.restore()
    algorithm.model.train()
    return metrics


class EvaluationHook(Hook):
    """Measures every ``num_eval_iter`` steps and after the last, and appends the record to the run's metrics."""

    def after_train_step(self, algorithm: Any) -> None:
        if not (self.every_n_iters(algorithm, algorithm.num_eval_iter) or self.is_last_iter(algorithm)):
            return
        measured = measure(algorithm)
        record = {
            "iteration": algorithm.it + 1,
            "epoch": round((algorithm.it + 1) / algorithm.num_iter_per_epoch, 3),
            **{name: float(value) for name, value in algorithm.log_dict.items() if name.startswith("train/")},
            **measured,
            **current_rates(algorithm.optimizer),
            "seconds": round(algorithm.seconds_before + time.monotonic() - algorithm.started, 3),
        }
        algorithm.metrics.append(record)
        if algorithm.context.folder is not None and algorithm.context.processes.is_main:
            algorithm.context.folder.append_metrics(record)
        # USB's trackers read these names.
        algorithm.log_dict.update({name: value for name, value in measured.items() if value is not None})
        algorithm.log_dict["eval/top-1-acc"] = measured["source_val/top1"]
        if measured["source_val/top1"] >= algorithm.best_eval_acc:
            algorithm.best_eval_acc, algorithm.best_it = measured["source_val/top1"], algorithm.it
