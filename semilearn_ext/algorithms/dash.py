"""USB's Dash with a warm-up that runs on any device.

Dash (Xu et al., ICML 2021, https://arxiv.org/abs/2109.00650) sets its first loss threshold after some supervised steps.
USB times them with CUDA events and lets them advance the learning-rate schedule; here they run at the initial learning
rate.
"""

from __future__ import annotations

from typing import Any

from semilearn_ext.semilearn_api import Dash


class PortableDash(Dash):
    scheduler: Any

    def warmup(self) -> None:
        """Take ``num_wu_iter`` supervised steps, then set the threshold to the loss on held-out source images."""
        schedule, self.scheduler = self.scheduler, None
        loader = self.loader_dict["train_lb"]
        self.model.train()
        for step in range(self.num_wu_iter):
            batch = self._labelled_batch(loader, step)
            with self.amp_cm():
                loss = self.ce_loss(self.model(batch["x_lb"])["logits"], batch["y_lb"], reduction="mean")
            self.out_dict = {"loss": loss}
            self.call_hook("after_train_step", "ParamUpdateHook")
        self.scheduler = schedule
        self.rho_init = self.evaluate()["eval/loss"]
        self.warmup_stage = False

    def _labelled_batch(self, loader: Any, step: int) -> dict[str, Any]:
        # Epoch numbers that training never reaches, so that the order of the warm-up is not repeated.
        epoch, epoch_step = 10**6 + step // loader.steps, step % loader.steps
        batch: dict[str, Any] = self.process_batch(["x_lb", "y_lb"], **loader.dataset[epoch, epoch_step])
        return batch
