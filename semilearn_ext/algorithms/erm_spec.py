"""ERM as the SSDG benchmark has it."""

from __future__ import annotations

from semilearn_ext.specs import AlgorithmSpec

ERM = AlgorithmSpec(
    name="erm",
    title="ERM",
    about="cross-entropy on labelled images; unlabelled ones only move the statistics of batch norm",
    paper="https://arxiv.org/abs/2106.00592",
    reference="semilearn_ext.algorithms.reference_step:ReferenceERM",
    no_plugins="it uses no unlabelled images in its loss",
)
