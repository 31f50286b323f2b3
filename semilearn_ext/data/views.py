"""Plain, weak and strong views of whole batches of images, for training and evaluation.

:mod:`semilearn_ext.data.views_reference` defines the views. Images are uint8 (N, 3, H, W) on any device; views are
float32 (N, 3, size, size), computed on that device. All randomness comes from a CPU generator.

Deviations from the definition: resizing and colour operations may differ by one grey level.
"""

from __future__ import annotations

import torch
from torch import Tensor

from semilearn_ext.data import kernels
from semilearn_ext.data.kernels import device, plans
from semilearn_ext.data.packed import Packed
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
"""The views that a batch in USB's format may contain, by the name of the entry."""


def plain(images: Tensor, spec: ViewSpec) -> Tensor:
    """The un-augmented view: uint8 (N, 3, H, W) to normalised float32 (N, 3, size, size)."""
    images = _checked(images)
    return (kernels.plain if images.device.type == "cpu" else device.plain)(images, spec)


def weak(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The weak view: translation by up to a ninth of the enlarged side, and flip."""
    images, draws = _checked(images), draw_weak(rng, len(images), spec)
    if images.device.type == "cpu":
        return kernels.weak(images, spec, draws)
    return device.weak(images, spec, Packed.of(plans.weak(draws, spec)).on(images.device))


def strong(images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The strong view: flip, two operations per image drawn with replacement, and cutout."""
    images, draws = _checked(images), draw_strong(rng, len(images), spec)
    if images.device.type == "cpu":
        return kernels.strong(images, spec, draws)
    return device.strong(images, spec, Packed.of(plans.strong(draws, spec)).on(images.device))


def make(kind: str, images: Tensor, spec: ViewSpec, rng: torch.Generator) -> Tensor:
    """The ``plain``, ``weak`` or ``strong`` view."""
    if kind == "plain":
        return plain(images, spec)
    return weak(images, spec, rng) if kind == "weak" else strong(images, spec, rng)


def denormalise(views: Tensor, spec: ViewSpec) -> Tensor:
    """Convert views back to uint8 images of the same shape; inverts ``plain`` for images of the right size."""
    mean, std = (torch.tensor(numbers, device=views.device).view(3, 1, 1) for numbers in (spec.mean, spec.std))
    return views.mul(std).add_(mean).mul_(255).round_().clamp_(0, 255).to(torch.uint8)


def _checked(images: Tensor) -> Tensor:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"expected uint8 images (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
    return images.contiguous()
