"""DGWM: the class weights are modulated by domain while training.

Galappaththige et al., "Domain-Guided Weight Modulation for Semi-Supervised Domain Generalization" (WACV 2025). It
adds no loss: it puts a classifier of its own in the place of the base's, and the base's supervised loss, unsupervised
loss and pseudo labels are made with it. At test the bare weight is used.
"""

from __future__ import annotations

from torch import Tensor

from semilearn_ext.nets.modulated_classifier import ModulatedClassifier
from semilearn_ext.plugins.base import Observation, Plugin, register


@register("dgwm")
class DGWM(Plugin):
    def classifier(self) -> ModulatedClassifier:
        return ModulatedClassifier(self.scene.num_features, self.scene.num_classes)

    def losses(self, seen: Observation) -> dict[str, tuple[float, Tensor]]:
        return {}
