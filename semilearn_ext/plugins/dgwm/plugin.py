"""DGWM: the class weights are modulated by domain during training.

Galappaththige et al., "Domain-Guided Weight Modulation for Semi-Supervised Domain Generalization" (WACV 2025,
https://arxiv.org/abs/2409.03509). It adds no loss: it replaces the base's classifier, and the base's supervised loss,
unsupervised loss and pseudo labels are computed with it. At test the bare weight is used.
"""

from __future__ import annotations

from semilearn_ext.nets.modulated_classifier import ModulatedClassifier
from semilearn_ext.plugins.base import Plugin


class DGWM(Plugin):
    wants = None

    def head(self) -> ModulatedClassifier:
        return ModulatedClassifier(self.model.num_features, self.model.num_classes)
