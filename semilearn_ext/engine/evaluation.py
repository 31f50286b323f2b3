"""The metrics of an evaluation, and the hook that computes and records them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from semilearn_ext.data.loaders import PlainImages
from semilearn_ext.engine.averages import estimate_statistics
from semilearn_ext.engine.details import Details, measure_details
from semilearn_ext.engine.device import to_device
from semilearn_ext.engine.optim import current_rates
from semilearn_ext.plugins.confidence import confidence_mask
from semilearn_ext.semilearn_api import Hook

if TYPE_CHECKING:
    from semilearn_ext.engine.base import SSDGBase


@torch.inference_mode()
def predict(
    algorithm: SSDGBase, images: PlainImages, out_key: str = "logits", width: int | None = None
) -> torch.Tensor:
    """Logits (N, C) of all ``images``, or another output of the given width. All processes share the work."""
    context = algorithm.context
    logits = torch.zeros(len(images), width or algorithm.num_classes, device=context.device)
    for part, x in images.share(context.group.rank, context.group.world_size):
        x = to_device(x, context.device, algorithm.channels_last)
        with algorithm.amp_cm():
            logits[part] = algorithm.model(x)[out_key].float()
    return context.group.all_reduce(logits)


def top1(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.argmax(1) == labels.to(logits.device)).float().mean())


def unlabeled_metrics(logits: Tensor, labels: Tensor, weight: Tensor | None) -> dict[str, float | None]:
    """Accuracy on all unlabelled source images, share of confident images, and accuracy on those.

    The true labels are used only for these metrics. For soft masks the share is the mean weight.

    Args:
        weight: (N,) from :func:`confidence_mask`; None if the base has no mask.
    """
    labels = labels.to(logits.device)
    correct = (logits.argmax(1) == labels).float()
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
    """The observation in the first table and figure of the UPCSC paper (https://arxiv.org/abs/2503.13915).

    The share of unlabelled images that are unconfident (UUS rate); the share of those whose true class is among their
    candidates, the classes with a confidence above 1 / C (inclusion rate); and their mean number of candidates.
    """
    candidates = prob > 1 / prob.shape[1]
    included = candidates.gather(1, labels[:, None])[:, 0].float()
    return {
        "unlabeled/uus_rate": float(unconfident.mean()),
        "unlabeled/inclusion_rate": _mean_over(included, unconfident),
        "unlabeled/candidates": _mean_over(candidates.sum(1).float(), unconfident),
    }


def _mean_over(values: Tensor, weight: Tensor) -> float | None:
    """The weighted mean, or None if all weights are zero."""
    total = float(weight.sum())
    return float((values * weight).sum()) / total if total else None


def measure(algorithm: SSDGBase) -> tuple[dict[str, Any], Details]:
    """All metrics of the current model, and their details."""
    algorithm.model.eval()
    if algorithm.settings.eval_with_ema and algorithm.ema is not None:
        algorithm.ema.apply_shadow()
    sets = algorithm.eval_sets
    logits = {name: predict(algorithm, sets[name]) for name in sets if name != "labeled"}
    weight = None
    metrics: dict[str, Any] = {
        "source_val/top1": top1(logits["source_val"], sets["source_val"].labels),
        "source_val/loss": float(F.cross_entropy(logits["source_val"], sets["source_val"].labels.to(algorithm.device))),
        "target/top1": top1(logits["target"], sets["target"].labels),
    }
    if "unlabeled" in sets:
        weight = confidence_mask(algorithm, logits["unlabeled"], predict(algorithm, sets["labeled"]))
        metrics |= unlabeled_metrics(logits["unlabeled"], sets["unlabeled"].labels, weight)
    labels = {name: sets[name].labels for name in logits}
    details = measure_details(logits, labels, weight, algorithm.context.data.classes)
    if algorithm.settings.eval_with_ema and algorithm.ema is not None:
        algorithm.ema.restore()
    algorithm.model.train()
    return {**metrics, **details.scalars}, details


def measure_averages(algorithm: SSDGBase) -> dict[str, float]:
    """``target/top1.ema``, ``source_val/top1.ema`` and the same for ``swa``. Does not affect training."""
    metrics = {}
    for name in algorithm.averages.started():
        with algorithm.averages.applied(name, algorithm.model):
            if name == "swa":
                estimate_statistics(algorithm)
            algorithm.model.eval()
            for images in ("target", "source_val"):
                eval_set = algorithm.eval_sets[images]
                metrics[f"{images}/top1.{name}"] = top1(predict(algorithm, eval_set), eval_set.labels)
    algorithm.model.train()
    return metrics


class EvaluationHook(Hook):
    """Evaluates every ``num_eval_iter`` steps and after the last one, and appends the record to the run's metrics.

    The details of the last evaluation are written to a separate file at the end of the run.
    """

    def after_train_step(self, algorithm: SSDGBase) -> None:
        is_last = self.is_last_iter(algorithm)
        if not (self.every_n_iters(algorithm, algorithm.num_eval_iter) or is_last):
            return
        measured, details = measure(algorithm)
        if is_last or algorithm.settings.average_eval == "every":
            measured |= measure_averages(algorithm)
        record: dict[str, float | None] = {
            "iteration": algorithm.it + 1,
            "epoch": round((algorithm.it + 1) / algorithm.num_iter_per_epoch, 3),
            **{name: float(value) for name, value in algorithm.log_dict.items() if name.startswith("train/")},
            **measured,
            **current_rates(algorithm.optimizer),
            "seconds": round(algorithm.seconds_before + time.monotonic() - algorithm.started, 3),
        }
        algorithm.metrics.append(record)
        algorithm.details = details.content if is_last else None
        if algorithm.context.folder is not None and algorithm.context.group.is_main:
            algorithm.context.folder.append_metrics(record)
        # USB's trackers read these names.
        algorithm.log_dict.update({name: value for name, value in measured.items() if value is not None})
        algorithm.log_dict["eval/top-1-acc"] = measured["source_val/top1"]
        if measured["source_val/top1"] >= algorithm.best_eval_acc:
            algorithm.best_eval_acc, algorithm.best_it = measured["source_val/top1"], algorithm.it
