"""Losses: pure functions of tensors that know nothing about trainers. One file per paper."""

from semilearn_ext.losses.fbcsa import FBCSATerms, fbcsa_loss
from semilearn_ext.losses.upcsc import UPCSCTerms, upcsc_loss

__all__ = ["FBCSATerms", "UPCSCTerms", "fbcsa_loss", "upcsc_loss"]
