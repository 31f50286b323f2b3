"""Averaged weights, updated in place, and only where they are used."""

from __future__ import annotations

import torch

from semilearn_ext.semilearn_api import EMA, Hook


class InPlaceEMA(EMA):
    """USB's EMA with one fused update of the shadow weights instead of two new copies of the network per step."""

    # Autocast keeps the weights that it has cast, by parameter, and would go on using those from before the swap.

    def apply_shadow(self) -> None:
        super().apply_shadow()
        torch.clear_autocast_cache()

    def restore(self) -> None:
        super().restore()
        torch.clear_autocast_cache()

    def update(self) -> None:
        weights = [parameter.data for parameter in self.model.parameters()]
        torch._foreach_lerp_(list(self.shadow.values()), weights, 1 - self.decay)


class EMAHook(Hook):
    """Updates ``algorithm.ema`` after the optimizer, if there is one."""

    def after_train_step(self, algorithm: object) -> None:
        ema = getattr(algorithm, "ema", None)
        if ema is not None:
            ema.update()
