"""Semi-supervised domain generalization (SSDG) on top of USB, the package ``semilearn``.

Importing this root imports neither torch nor semilearn. ``import semilearn_ext.algorithms`` registers
everything with USB's algorithm registry.
"""

__version__ = "0.1.0"
