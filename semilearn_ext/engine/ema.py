"""An exponential moving average of the weights that is updated in place, and only for methods that use it."""

from __future__ import annotations

import torch

from semilearn_ext.semilearn_api import EMA, Hook


class InPlaceEMA(EMA):
    """USB's EMA with one fused update of the shadow weights instead of two new copies of the network per step."""

    # Autocast caches the weights that it has cast, and would otherwise keep using those from before the swap.

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
    """Updates ``algorithm.ema``, if there is one, after every optimizer step."""

    def after_train_step(self, algorithm: object) -> None:
        ema = getattr(algorithm, "ema", None)
        if ema is not None:
            ema.update()
