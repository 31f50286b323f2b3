"""What plug-ins need in stock USB, where this package's engine does not provide it."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError
from semilearn_ext.semilearn_api import AlgorithmBase


class StockUSB(AlgorithmBase):
    """Adds what plug-ins need in stock USB. Placed after a USB algorithm class in the bases of a class."""

    base: ClassVar[str]
    """The base algorithm's name."""
    model: nn.Module

    def set_dataset(self) -> dict[str, Any] | None:
        if self.args.imb_algorithm is not None:
            raise UserError(
                f"{self.args.algorithm}: plug-ins do not work with USB's algorithms for imbalanced data, which replace "
                f"the network and the step; remove imb_algorithm: {self.args.imb_algorithm}"
            )
        # USB's datasets choose the views by the name of the algorithm.
        self.algorithm = self.base
        datasets: dict[str, Any] | None = super().set_dataset()
        return datasets

    def process_batch(self, input_args: Iterable[str] | None = None, **batch: Any) -> dict[str, Any]:
        missing = [name for name in input_args or signature(self.train_step).parameters if name not in batch]
        if missing:
            raise UserError(
                f"{self.args.algorithm}: batches have no {', '.join(missing)}; USB's datasets choose the views by the "
                f"name of the algorithm, so create them for {self.base!r}"
            )
        ready: dict[str, Any] = super().process_batch(input_args, **batch)
        return ready

    def set_optimizer(self) -> tuple[torch.optim.Optimizer, Any]:
        """Build USB's own groups without plug-ins, because with ``layer_decay`` they depend on all parameter names."""
        plugins = self.model.get_submodule("plugins")
        del self.model.plugins
        try:
            groups: tuple[torch.optim.Optimizer, Any] = super().set_optimizer()
        finally:
            self.model.plugins = plugins
        return groups

    def epoch_begins(self) -> bool:
        """Whether training is at the first step of an epoch, which a resumed run may not be."""
        return True

    def labelled_images(self) -> list[tuple[Tensor, Tensor]]:
        """Un-augmented labelled images (M, 3, H, W) and labels (M,), one pair per source domain."""
        dataset = self.loader_dict["train_lb"].dataset
        if not hasattr(dataset, "plain_images"):
            raise UserError(
                f"{self.args.algorithm}: needs un-augmented labelled images by domain; train on the datasets of "
                f"semilearn_ext.usb.get_datasets"
            )
        images: list[tuple[Tensor, Tensor]] = dataset.plain_images()
        return images
