"""The spec of ERM as implemented in the SSDG benchmark (Zhou et al., https://arxiv.org/abs/2106.00592)."""

from __future__ import annotations

from semilearn_ext.specs import AlgorithmSpec

ERM = AlgorithmSpec(
    name="erm",
    title="ERM",
    about="cross-entropy on labelled images; unlabelled ones only update batch norm's statistics",
    paper="https://arxiv.org/abs/2106.00592",
    reference="semilearn_ext.algorithms.reference_step:ReferenceERM",
    no_plugins="it uses no unlabelled images in its loss",
)
