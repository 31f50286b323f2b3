"""Networks and classifier heads. The list of the networks' specs is here, without torch."""

from semilearn_ext.nets.specs import SPECS

__all__ = ["SPECS"]
