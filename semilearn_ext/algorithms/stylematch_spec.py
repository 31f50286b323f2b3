"""The spec of StyleMatch."""

from __future__ import annotations

from semilearn_ext.algorithms.usb_specs import SPECS as USB_SPECS
from semilearn_ext.specs import AlgorithmSpec, Option

_FIXMATCH = next(spec for spec in USB_SPECS if spec.name == "fixmatch")

STYLEMATCH = AlgorithmSpec(
    name="stylematch",
    title="StyleMatch",
    about="FixMatch with a stochastic classifier and a style view",
    paper="https://arxiv.org/abs/2106.00592",
    options={
        **_FIXMATCH.options,
        "style_alpha": Option(0.5, "strength of the other domain's style", minimum=0, maximum=1),
    },
    implementation="semilearn_ext.algorithms.stylematch:StyleMatch",
    engine="semilearn_ext.algorithms.stylematch:CachingStyleMatch",
    reference="semilearn_ext.algorithms.reference_step:ReferenceStyleMatch",
    reads=("adain_dir",),
    needs_domains=True,
    takes_head=True,
    draws_on_device=True,
)
