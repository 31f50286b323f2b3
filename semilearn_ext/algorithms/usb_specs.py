"""The specs of USB's own algorithms.

USB declares the options of an algorithm in ``get_argument()``, but calling it means importing ``semilearn``, which
takes ten seconds. ``--help`` and the planning of a sweep must not wait for that. A test compares these specs with the
installed package.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from semilearn_ext.specs import AlgorithmSpec, Option

_HARD = Option(True, "train on the most likely class instead of the soft distribution")
_T = Option(0.5, "temperature that sharpens the targets", above=0)
_CUTOFF = Option(0.95, "confidence threshold tau", minimum=0, maximum=1)
_EMA_P = Option(0.999, "momentum of the running class probabilities", minimum=0, below=1)
_WARM_UP = Option(0.4, "fraction of training over which the unlabelled weight ramps up", above=0, maximum=1)
_PROJECTION = Option(128, "width of the projection head", minimum=1, maximum=2**16)
_QUEUE = Option(256, "number of batches kept for distribution alignment", minimum=1, maximum=10**5)
_SMOOTHING = Option(0.9, "weight of the model's own prediction in memory smoothing", minimum=0, maximum=1)
_ROTATION = Option(1.0, "weight of the rotation loss", minimum=0)
_MANIFOLD = Option(False, "mix features instead of images")
_ENTROPY = Option(0.01, "weight of the fairness loss", minimum=0)

_NO_UNLABELLED = "it uses no unlabelled images"
_NO_THRESHOLD = "it enforces consistency on all images and has no confidence threshold"
_MIXES = "it mixes all images and has no confidence threshold"


def _usb(name: str, title: str, about: str, paper: str, **fields: Any) -> AlgorithmSpec:
    return AlgorithmSpec(
        name=name, title=title, about=about, paper=paper and f"https://arxiv.org/abs/{paper}", **fields
    )


SPECS = (
    _usb(
        "adamatch",
        "AdaMatch",
        "relative confidence threshold and distribution alignment",
        "2106.04732",
        options={"hard_label": _HARD, "T": _T, "ema_p": _EMA_P, "p_cutoff": _CUTOFF},
        weak_needs_cat=True,
    ),
    _usb(
        "comatch",
        "CoMatch",
        "pseudo labels smoothed over a graph of embeddings",
        "2011.11183",
        options={
            "hard_label": _HARD,
            "T": _T,
            "p_cutoff": _CUTOFF,
            "contrast_p_cutoff": Option(0.8, "similarity above which two images are linked", minimum=0, maximum=1),
            "contrast_loss_ratio": Option(1.0, "weight of the contrastive loss", minimum=0),
            "proj_size": _PROJECTION,
            "queue_batch": Option(128, "number of batches kept in the feature memory", minimum=1, maximum=10**5),
            "smoothing_alpha": _SMOOTHING,
            "da_len": _QUEUE,
        },
        weak_needs_cat=True,
        projected_features=True,
        calls_cuda=True,
    ),
    _usb(
        "crmatch",
        "CRMatch",
        "consistency of features and of rotations",
        "2112.05825",
        options={"hard_label": _HARD, "rot_loss_ratio": _ROTATION, "p_cutoff": _CUTOFF},
        unavailable="its head is sized for USB's own networks and datasets, and its rotation loader reads their files",
    ),
    _usb(
        "dash",
        "Dash",
        "a loss threshold that decreases during training",
        "2109.00650",
        options={
            "T": _T,
            "gamma": Option(1.27, "rate at which the loss threshold decreases", above=1),
            "C": Option(1.0001, "factor on the initial loss threshold", above=0),
            "rho_min": Option(0.05, "smallest loss threshold", minimum=0),
            "num_wu_iter": Option(2048, "number of supervised warm-up iterations", minimum=0, maximum=10**9),
            "num_wu_eval_iter": Option(
                100, "iterations between two log lines of the warm-up", minimum=1, maximum=10**9
            ),
        },
        engine="semilearn_ext.algorithms.dash:PortableDash",
        weak_needs_cat=True,
    ),
    _usb(
        "defixmatch",
        "DeFixMatch",
        "FixMatch, debiased with the labelled images",
        "2203.07512",
        options={"hard_label": _HARD, "T": _T, "p_cutoff": _CUTOFF},
        weak_needs_cat=True,
    ),
    _usb(
        "fixmatch",
        "FixMatch",
        "the weak view's pseudo label supervises the strong view, above a fixed threshold",
        "2001.07685",
        options={"hard_label": _HARD, "T": _T, "p_cutoff": _CUTOFF},
        reference="semilearn_ext.algorithms.reference_step:ReferenceFixMatch",
        takes_head=True,
        weak_needs_cat=True,
    ),
    _usb(
        "flexmatch",
        "FlexMatch",
        "FixMatch with one threshold per class",
        "2110.08263",
        options={
            "hard_label": _HARD,
            "T": _T,
            "p_cutoff": _CUTOFF,
            "thresh_warmup": Option(True, "count unused images when scaling the class thresholds"),
        },
        weak_needs_cat=True,
    ),
    _usb(
        "freematch",
        "FreeMatch",
        "FixMatch with self-adaptive thresholds and a fairness term",
        "2205.07246",
        options={
            "hard_label": _HARD,
            "T": _T,
            "ema_p": _EMA_P,
            "ent_loss_ratio": _ENTROPY,
            "use_quantile": Option(False, "follow the 0.8 quantile of the confidences instead of their mean"),
            "clip_thresh": Option(False, "keep the global threshold at or below 0.95"),
        },
        takes_head=True,
        float32_losses=True,
        weak_needs_cat=True,
    ),
    _usb(
        "fullysupervised",
        "FullySupervised",
        "the same step as supervised; in USB only the data differ",
        "",
        no_plugins=_NO_UNLABELLED,
        labelled_only=True,
    ),
    _usb(
        "meanteacher",
        "MeanTeacher",
        "consistency with a network of averaged weights",
        "1703.01780",
        options={"unsup_warm_up": _WARM_UP},
        no_plugins=_NO_THRESHOLD,
        weak_pair=True,
        teacher=True,
    ),
    _usb(
        "mixmatch",
        "MixMatch",
        "sharpened predictions on mixed images",
        "1905.02249",
        options={
            "T": _T,
            "unsup_warm_up": replace(_WARM_UP, default=1 / 64),
            "mixup_alpha": Option(0.5, "parameter of MixUp's Beta distribution", minimum=0),
            "mixup_manifold": _MANIFOLD,
        },
        no_plugins=_MIXES,
        draws_on_device=True,
        weak_pair=True,
    ),
    _usb(
        "pimodel",
        "PiModel",
        "consistency of two weak views",
        "1610.02242",
        options={"unsup_warm_up": _WARM_UP},
        no_plugins=_NO_THRESHOLD,
        weak_pair=True,
    ),
    _usb(
        "pseudolabel",
        "PseudoLabel",
        "confident predictions of the model as labels",
        "1908.02983",
        options={"p_cutoff": _CUTOFF, "unsup_warm_up": _WARM_UP},
    ),
    _usb(
        "remixmatch",
        "ReMixMatch",
        "MixMatch with distribution alignment, strong views and rotations",
        "1911.09785",
        options={
            "T": _T,
            "kl_loss_ratio": Option(0.5, "weight of the loss on the unmixed strong view", minimum=0),
            "rot_loss_ratio": replace(_ROTATION, default=0.5),
            "unsup_warm_up": replace(_WARM_UP, default=1 / 64),
            "mixup_alpha": Option(0.75, "parameter of MixUp's Beta distribution", minimum=0),
            "mixup_manifold": _MANIFOLD,
        },
        no_plugins=_MIXES,
        draws_on_device=True,
    ),
    _usb(
        "simmatch",
        "SimMatch",
        "similarity to labelled images, by class and by features",
        "2203.06915",
        options={
            "T": _T,
            "p_cutoff": _CUTOFF,
            "proj_size": _PROJECTION,
            "K": Option(
                128, "size of the memory bank (USB replaces it by the number of labels)", minimum=1, maximum=10**7
            ),
            "in_loss_ratio": Option(1.0, "weight of the instance-similarity loss", minimum=0),
            "smoothing_alpha": _SMOOTHING,
            "da_len": _QUEUE,
        },
        teacher=True,
        projected_features=True,
        calls_cuda=True,
        float32_losses=True,
    ),
    _usb(
        "softmatch",
        "SoftMatch",
        "FixMatch with soft weights instead of a threshold",
        "2301.10921",
        options={
            "hard_label": _HARD,
            "T": _T,
            "dist_align": Option(True, "align predictions with a target distribution"),
            "dist_uniform": Option(True, "the target distribution is uniform, not that of the labels"),
            "ema_p": _EMA_P,
            "n_sigma": Option(2, "width of the Gaussian weight", minimum=1, maximum=100),
            "per_class": Option(False, "one Gaussian per class"),
        },
        engine="semilearn_ext.algorithms.softmatch:PortableSoftMatch",
        weak_needs_cat=True,
    ),
    _usb(
        "supervised",
        "ERM (labelled images only)",
        "cross-entropy on labelled images; unlabelled images are not read",
        "",
        no_plugins=_NO_UNLABELLED,
        labelled_only=True,
    ),
    _usb(
        "uda",
        "UDA",
        "consistency with strong views, sharpened targets",
        "1904.12848",
        options={
            "tsa_schedule": Option(
                "none", "schedule of training signal annealing", choices=("none", "linear", "log", "exp")
            ),
            "T": replace(_T, default=0.4),
            "p_cutoff": replace(_CUTOFF, default=0.8),
        },
        weak_needs_cat=True,
    ),
    _usb(
        "vat",
        "VAT",
        "consistency under the worst small perturbation",
        "1704.03976",
        options={
            "ent_loss_ratio": Option(0.06, "weight of the entropy loss", minimum=0),
            "vat_eps": Option(6.0, "size of the adversarial perturbation", minimum=0),
            "vat_embed": Option(False, "perturb word embeddings (text only)"),
            "unsup_warm_up": _WARM_UP,
        },
        no_plugins="it perturbs all images and returns no features",
        draws_on_device=True,
        calls_cuda=True,
        needs_float32="it computes its perturbation with steps of 1e-6, which half precision rounds to zero",
    ),
)
USB_NAMES = frozenset(spec.name for spec in SPECS)
