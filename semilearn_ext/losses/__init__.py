"""Losses: pure functions of tensors that know nothing of trainers. One paper a file."""

from semilearn_ext.losses.upcsc import UPCSCLoss, upcsc_loss

__all__ = ["UPCSCLoss", "upcsc_loss"]
