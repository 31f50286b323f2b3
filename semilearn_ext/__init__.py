"""Semi-supervised domain generalization (SSDG) on top of USB, the package ``semilearn``.

Importing this package imports neither torch nor semilearn. ``import semilearn_ext.usb`` registers all methods with
USB's algorithm registry.
"""

__version__ = "0.1.0"
