"""The spec of DGWM."""

from __future__ import annotations

from semilearn_ext.specs import Needs, PluginSpec

DGWM = PluginSpec(
    name="dgwm",
    title="DGWM",
    about="class weights modulated by domain during training (WACV 2025)",
    paper="https://arxiv.org/abs/2409.03509",
    needs=Needs(mask=False, domains=True, head=True),
    implementation="semilearn_ext.plugins.dgwm.plugin:DGWM",
)
