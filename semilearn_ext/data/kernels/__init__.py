"""Fast kernels that compute the views of a whole batch.

The interface is three functions: ``plain(images, spec)``, ``weak(images, spec, draws)`` and
``strong(images, spec, draws)``, from uint8 (N, 3, H, W) on the CPU to normalised float32 (N, 3, size, size). What they
compute is defined in :mod:`semilearn_ext.data.views_reference`; everything else in this folder is about speed.
"""

from semilearn_ext.data.kernels.cpu import plain, strong, weak

__all__ = ["plain", "strong", "weak"]
