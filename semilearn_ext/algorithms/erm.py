"""ERM: cross-entropy on labelled images only. No unlabelled image is loaded, decoded or augmented."""

from __future__ import annotations

from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.usb import ALGORITHMS, FullySupervised


@ALGORITHMS.register("erm")
class ERM(FullySupervised, SSDGBase):
    """USB's ``supervised`` under the name the paper has for it."""
