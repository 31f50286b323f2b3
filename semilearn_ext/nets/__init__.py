"""Networks and classifier heads. ``SPECS`` lists the networks and does not import torch."""

from semilearn_ext.nets.specs import SPECS

__all__ = ["SPECS"]
