"""DGWM: class weights that are modulated by domain during training.

Galappaththige et al., "Domain-Guided Weight Modulation for Semi-Supervised Domain Generalization" (WACV 2025,
https://arxiv.org/abs/2409.03509). It adds no loss. It replaces the classifier of the base algorithm, which is then used
for its supervised loss, unsupervised loss and pseudo labels. At test time the weights are not modulated.
"""

from __future__ import annotations

from semilearn_ext.nets.modulated_classifier import ModulatedClassifier
from semilearn_ext.plugins.base import Plugin


class DGWM(Plugin):
    wants = None

    def head(self) -> ModulatedClassifier:
        return ModulatedClassifier(self.model.num_features, self.model.num_classes)
