"""Losses as pure functions of tensors, independent of any trainer. One module per paper."""

from semilearn_ext.losses.fbcsa import FBCSATerms, fbcsa_loss
from semilearn_ext.losses.upcsc import UPCSCTerms, upcsc_loss

__all__ = ["FBCSATerms", "UPCSCTerms", "fbcsa_loss", "upcsc_loss"]
