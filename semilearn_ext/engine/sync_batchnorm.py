"""Batch norm over the images of all processes, on any device.

torch's SyncBatchNorm needs GPUs. This one adds up counts, sums and squares with a differentiable all-reduce, so two CPU
processes with half a batch each get the same statistics and gradients as one process with the whole batch.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.nn.functional import all_reduce


class PortableSyncBatchNorm(nn.BatchNorm2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return super().forward(x)
        # Half precision cannot hold the number of pixels, nor the small difference of large sums.
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        count = precise.new_full((1,), x.numel() / x.shape[1])
        sums = all_reduce(torch.cat([precise.sum((0, 2, 3)), precise.square().sum((0, 2, 3)), count]))
        total, squares, count = sums.split([self.num_features, self.num_features, 1])
        mean = total / count
        variance = (squares / count - mean.square()).clamp_min(0)
        self._track(mean.detach(), (variance * count / (count - 1)).detach())
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return (precise * scale[:, None, None] + (self.bias - mean * scale)[:, None, None]).to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        momentum = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean, momentum)
        self.running_var.lerp_(variance, momentum)


def synchronise(model: nn.Module, device: torch.device) -> nn.Module:
    """Make the batch norms of ``model`` use the images of all processes."""
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)
    for parent in model.modules():
        for name, child in parent.named_children():
            if type(child) is nn.BatchNorm2d:
                setattr(parent, name, _converted(child))
    return model


def _converted(norm: nn.BatchNorm2d) -> PortableSyncBatchNorm:
    synced = PortableSyncBatchNorm(norm.num_features, norm.eps, norm.momentum)
    synced.load_state_dict(norm.state_dict())
    return synced
