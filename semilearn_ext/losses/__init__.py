"""Losses: pure functions of tensors that know nothing of trainers. One paper a file."""

from semilearn_ext.losses.fbcsa import FBCSALoss, fbcsa_loss
from semilearn_ext.losses.upcsc import UPCSCLoss, upcsc_loss

__all__ = ["FBCSALoss", "UPCSCLoss", "fbcsa_loss", "upcsc_loss"]
