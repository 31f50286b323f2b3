"""The spec of FBCSA."""

from __future__ import annotations

from semilearn_ext.specs import Needs, Option, PluginSpec

FBCSA = PluginSpec(
    name="fbcsa",
    title="FBCSA",
    about="conformity and alignment with class prototypes of every domain (CVPR 2024)",
    paper="https://arxiv.org/abs/2403.11674",
    options={
        "fbc_weight": Option(0.1, "weight of the conformity loss", minimum=0),
        "sa_weight": Option(0.5, "weight of the alignment loss", minimum=0),
        "prototype_mode": Option(
            "train",
            "mode of the network when prototypes are computed (released code: train)",
            choices=("train", "eval"),
        ),
    },
    # With fewer classes, there is no range to draw the last rank from.
    needs=Needs(domains=True, classes=5, sources=2),
    implementation="semilearn_ext.plugins.fbcsa.plugin:FBCSA",
)
