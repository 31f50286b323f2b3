"""FixMatch's losses over any number of strong views and by any classifier, from USB's FixMatch and its hooks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from semilearn_ext.engine.base import SSDGBase
from semilearn_ext.nets.classifier_net import by_domain, find_classifier, pseudo_logits
from semilearn_ext.usb import FixMatch


class FixMatchParts(FixMatch, SSDGBase):
    """What StyleMatch and the reference step are put together from. Batches lie domain after domain."""

    @property
    def domains(self) -> int:
        return len(self.context.data.sources)

    def classify(self, feat: Tensor) -> Tensor:
        return by_domain(find_classifier(self.model), feat, self.domains)

    def unlabelled_losses(self, weak: Tensor, others: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """The loss of every other view's features against the weak view's pseudo labels, and the mask (N,)."""
        logits = pseudo_logits(find_classifier(self.model), weak.detach(), self.domains)
        prob = self.compute_prob(logits.detach())
        mask = self.call_hook("masking", "MaskingHook", logits_x_ulb=prob, softmax_x_ulb=False)
        label = self.call_hook(
            "gen_ulb_targets",
            "PseudoLabelingHook",
            logits=prob,
            use_hard_label=self.use_hard_label,
            T=self.T,
            softmax=False,
        )
        return [self.consistency_loss(self.classify(view), label, "ce", mask=mask) for view in others], mask

    def outcome(self, sup_loss: Tensor, losses: list[Tensor], mask: Tensor, feat: dict[str, Any]) -> Any:
        """What USB's ``train_step`` returns. Logged numbers stay on the device until they are recorded."""
        total = sup_loss + self.lambda_u * sum(losses)
        logged = {"sup_loss": sup_loss, "unsup_loss": losses[0], "total_loss": total, "util_ratio": mask.float().mean()}
        if len(losses) > 1:
            logged["style_loss"] = losses[1]
        return (
            self.process_out_dict(loss=total, feat=feat),
            self.process_log_dict(**{name: value.detach() for name, value in logged.items()}),
        )
