"""Plain, weak and strong views of whole batches of images: what training and evaluation use.

:mod:`semilearn_ext.data.views_reference` says what the views are. Images are uint8 (N, 3, H, W) on any device, views
float32 (N, 3, size, size) on the same device. They are computed by the CPU, bit by bit the same for every device. All
randomness comes from a CPU generator.

Deviations from the reference: resizing and colour operations may differ by one grey level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from semilearn_ext.data import kernels
from semilearn_ext.data.view_spec import ViewSpec, draw_strong, draw_weak

__all__ = ["VIEW_KINDS", "ViewSpec", "denormalise", "make", "plain", "strong", "weak"]

VIEW_KINDS = {
    "x_lb": "weak",
    "x_lb_s": "strong",
    "x_lb_p": "plain",
    "x_ulb_w": "weak",
    "x_ulb_s": "strong",
    "x_ulb_p": "plain",
    "x_ulb_s_0": "strong",
    "x_ulb_s_1": "strong",
}
"""The views that a batch in USB's form may contain, by the name of the entry."""


def plain(images: Tensor, spec: ViewSpec) -> Tensor:
    """The un-augmented view: uint8 (N, 3, H, W) to normalised float32 (N, 3, size, size)."""
    return kernels.plain(_on_cpu(images), spec).to(images.device)


def weak(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The weak view: translated by up to a ninth of the enlarged side, and flipped."""
    return kernels.weak(_on_cpu(images), spec, draw_weak(rng, len(images), spec)).to(images.device)


def strong(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The strong view: flipped, two operations drawn with replacement for every image, and cutout."""
    return kernels.strong(_on_cpu(images), spec, draw_strong(rng, len(images), spec)).to(images.device)


def make(kind: str, images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The ``plain``, ``weak`` or ``strong`` view."""
    if kind == "plain":
        return plain(images, spec)
    return weak(images, spec, rng) if kind == "weak" else strong(images, spec, rng)


def denormalise(views: Tensor, spec: ViewSpec) -> Tensor:
    """Views back to uint8 images of the same shape; undoes ``plain`` for images of the right size."""
    mean, std = (torch.tensor(numbers, device=views.device).view(3, 1, 1) for numbers in (spec.mean, spec.std))
    return views.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).to(torch.uint8)


def _on_cpu(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"expected uint8 images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    return images.cpu().contiguous()
