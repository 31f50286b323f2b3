"""Fast kernels that compute the views of a whole batch.

The interface is three functions: ``plain(images, spec)``, ``weak(images, spec, draws)`` and
``strong(images, spec, draws)``. They turn uint8 images (N, 3, H, W) on the CPU into normalised float32 views
(N, 3, size, size). The result is defined by :mod:`semilearn_ext.data.views_reference`; everything else in this
package is about speed.
"""

from semilearn_ext.data.kernels.cpu import plain, strong, weak

__all__ = ["plain", "strong", "weak"]
