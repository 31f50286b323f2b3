"""Averaged weights, kept in place, and only where somebody uses them."""

from __future__ import annotations

import torch

from semilearn_ext.usb import EMA, Hook


class InPlaceEMA(EMA):
    """USB's EMA with one fused update of the shadow weights instead of two new copies of the network a step."""

    def update(self) -> None:
        weights = [parameter.data for parameter in self.model.parameters()]
        torch._foreach_lerp_(list(self.shadow.values()), weights, 1 - self.decay)


class EMAHook(Hook):
    """Updates ``algorithm.ema`` after the optimizer, if there is one."""

    def after_train_step(self, algorithm: object) -> None:
        ema = getattr(algorithm, "ema", None)
        if ema is not None:
            ema.update()
