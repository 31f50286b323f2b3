"""USB's SoftMatch, repaired for several processes.

SoftMatch (Chen et al., ICLR 2023) estimates the mean and variance of the confidences over all processes. USB's hook
gathers them with a method that it does not have; here it has it.
"""

from __future__ import annotations

from semilearn_ext.semilearn_api import SoftMatch, concat_all_gather


class PortableSoftMatch(SoftMatch):
    def set_hooks(self) -> None:
        super().set_hooks()
        self.hooks_dict["MaskingHook"].concat_all_gather = concat_all_gather
