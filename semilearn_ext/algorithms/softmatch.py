"""USB's SoftMatch, fixed for several processes.

SoftMatch (Chen et al., ICLR 2023, https://arxiv.org/abs/2301.10921) estimates the mean and variance of the confidences
over all processes. USB's hook gathers them with a method that it does not define; it is added here.
"""

from __future__ import annotations

from semilearn_ext.semilearn_api import SoftMatch, concat_all_gather


class PortableSoftMatch(SoftMatch):
    def set_hooks(self) -> None:
        super().set_hooks()
        self.hooks_dict["MaskingHook"].concat_all_gather = concat_all_gather
