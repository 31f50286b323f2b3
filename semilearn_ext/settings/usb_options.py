"""The options each of USB's algorithms declares, as data.

USB names them in ``get_argument()``, but asking it takes the ten seconds that importing ``semilearn`` takes,
and ``--help`` or planning a sweep must not. A test holds this table to the installed wheel.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Option(NamedTuple):
    """One option of one algorithm: its type is the default's."""

    default: Any
    help: str


_HARD = Option(True, "use the arg-max class as target instead of the soft distribution")
_T = Option(0.5, "temperature for sharpening targets")
_CUTOFF = Option(0.95, "confidence threshold tau")
_EMA_P = Option(0.999, "momentum of the running class probabilities")
_WARM_UP = Option(0.4, "share of training over which the unlabelled weight ramps up")
_PROJECTION = Option(128, "size of the projection head")
_QUEUE = Option(256, "batches kept for distribution alignment")
_SMOOTHING = Option(0.9, "weight of the model's own prediction in memory smoothing")
_ROTATION = Option(1.0, "weight of the rotation loss")
_MANIFOLD = Option(False, "mix features instead of images")

USB_OPTIONS: dict[str, dict[str, Option]] = {
    "adamatch": {"hard_label": _HARD, "T": _T, "ema_p": _EMA_P, "p_cutoff": _CUTOFF},
    "comatch": {
        "hard_label": _HARD,
        "T": _T,
        "p_cutoff": _CUTOFF,
        "contrast_p_cutoff": Option(0.8, "similarity above which two images are linked"),
        "contrast_loss_ratio": Option(1.0, "weight of the contrastive loss"),
        "proj_size": _PROJECTION,
        "queue_batch": Option(128, "batches kept in the feature memory"),
        "smoothing_alpha": _SMOOTHING,
        "da_len": _QUEUE,
    },
    "crmatch": {"hard_label": _HARD, "rot_loss_ratio": _ROTATION, "p_cutoff": _CUTOFF},
    "dash": {
        "T": _T,
        "gamma": Option(1.27, "rate at which the loss threshold falls"),
        "C": Option(1.0001, "factor on the first loss threshold"),
        "rho_min": Option(0.05, "smallest loss threshold"),
        "num_wu_iter": Option(2048, "supervised warm-up iterations"),
        "num_wu_eval_iter": Option(100, "iterations between two lines of the warm-up's log"),
    },
    "defixmatch": {"hard_label": _HARD, "T": _T, "p_cutoff": _CUTOFF},
    "fixmatch": {"hard_label": _HARD, "T": _T, "p_cutoff": _CUTOFF},
    "flexmatch": {
        "hard_label": _HARD,
        "T": _T,
        "p_cutoff": _CUTOFF,
        "thresh_warmup": Option(True, "count unused images when scaling class thresholds"),
    },
    "freematch": {
        "hard_label": _HARD,
        "T": _T,
        "ema_p": _EMA_P,
        "ent_loss_ratio": Option(0.01, "weight of the fairness loss"),
        "use_quantile": Option(False, "follow the 0.8 quantile of the confidences, not their mean"),
        "clip_thresh": Option(False, "keep the global threshold at or below 0.95"),
    },
    "fullysupervised": {},
    "meanteacher": {"unsup_warm_up": _WARM_UP},
    "mixmatch": {
        "T": _T,
        "unsup_warm_up": _WARM_UP._replace(default=1 / 64),
        "mixup_alpha": Option(0.5, "parameter of MixUp's Beta distribution"),
        "mixup_manifold": _MANIFOLD,
    },
    "pimodel": {"unsup_warm_up": _WARM_UP},
    "pseudolabel": {"p_cutoff": _CUTOFF, "unsup_warm_up": _WARM_UP},
    "remixmatch": {
        "T": _T,
        "kl_loss_ratio": Option(0.5, "weight of the loss on the unmixed strong view"),
        "rot_loss_ratio": _ROTATION._replace(default=0.5),
        "unsup_warm_up": _WARM_UP._replace(default=1 / 64),
        "mixup_alpha": Option(0.75, "parameter of MixUp's Beta distribution"),
        "mixup_manifold": _MANIFOLD,
    },
    "simmatch": {
        "T": _T,
        "p_cutoff": _CUTOFF,
        "proj_size": _PROJECTION,
        "K": Option(128, "size of the memory bank (USB replaces it by the number of labels)"),
        "in_loss_ratio": Option(1.0, "weight of the instance-similarity loss"),
        "smoothing_alpha": _SMOOTHING,
        "da_len": _QUEUE,
    },
    "softmatch": {
        "hard_label": _HARD,
        "T": _T,
        "dist_align": Option(True, "align predictions with a target distribution"),
        "dist_uniform": Option(True, "that distribution is uniform, not the labelled one"),
        "ema_p": _EMA_P,
        "n_sigma": Option(2, "width of the Gaussian weight"),
        "per_class": Option(False, "one Gaussian a class"),
    },
    "supervised": {},
    "uda": {
        "tsa_schedule": Option("none", "training signal annealing: none, linear, log or exp"),
        "T": _T._replace(default=0.4),
        "p_cutoff": _CUTOFF._replace(default=0.8),
    },
    "vat": {
        "ent_loss_ratio": Option(0.06, "weight of the entropy loss"),
        "vat_eps": Option(6.0, "size of the adversarial perturbation"),
        "vat_embed": Option(False, "perturb word embeddings (text only)"),
        "unsup_warm_up": _WARM_UP,
    },
}

# Tried one by one; the reason is shown when somebody asks for one of them.
CANNOT_RUN: dict[str, str] = {
    "crmatch": "its head is sized for USB's own nets and data sets, and its rotation loader reads their files",
}
