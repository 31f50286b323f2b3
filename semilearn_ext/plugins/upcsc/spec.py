"""The specs of UPCSC and of its two parts, UPC and SC."""

from __future__ import annotations

from semilearn_ext.specs import Option, PluginSpec

PAPER = "https://arxiv.org/abs/2503.13915"

_UPC_WEIGHT = {"upc_weight": Option(1.0, "weight of the UPC loss", minimum=0)}
_SC_WEIGHT = {"sc_weight": Option(1.0, "weight of the SC loss", minimum=0)}
_UPC_ONLY = {
    "unconfident_negatives": Option(True, "use unconfident views as negatives of confident ones in UPC"),
}
_SC_ONLY = {
    "surrogate": Option(
        "weighted",
        "the positive of SC: the candidates' proxies weighted by confidence, their mean, or the most confident one",
        choices=("weighted", "average", "top1"),
    ),
}
_BOTH = {
    "loss_form": Option(
        "paper",
        "the paper's equations, or the released code (reference), which has a single mean and drops some negatives",
        choices=("paper", "reference"),
    ),
    "temperature": Option(1.0, "temperature of all similarities (1 means none, as in the paper)", minimum=1e-4),
    "projector_dim": Option(0, "width of the two projectors; 0 for that of the features", minimum=0, maximum=2**16),
    "contrast_views": Option("all", "views to contrast", choices=("all", "weak", "strong")),
}

UPC = PluginSpec(
    name="upc",
    title="UPC",
    about="unlabelled proxy-based contrastive loss for confident images (CVPR 2025)",
    paper=PAPER,
    options={**_UPC_WEIGHT, **_UPC_ONLY, **_BOTH},
    implementation="semilearn_ext.plugins.upcsc.plugin:UPC",
)
SC = PluginSpec(
    name="sc",
    title="SC",
    about="surrogate class loss for unconfident images (CVPR 2025)",
    paper=PAPER,
    options={**_SC_WEIGHT, **_SC_ONLY, **_BOTH},
    implementation="semilearn_ext.plugins.upcsc.plugin:SC",
)
UPCSC = PluginSpec(
    name="upcsc",
    title="UPCSC",
    about="UPC and SC together: the paper's method (CVPR 2025)",
    paper=PAPER,
    options={**_UPC_WEIGHT, **_SC_WEIGHT, **_UPC_ONLY, **_SC_ONLY, **_BOTH},
    implementation="semilearn_ext.plugins.upcsc.plugin:UPCSC",
)
