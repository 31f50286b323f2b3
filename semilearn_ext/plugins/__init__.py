"""Plug-ins, which add losses to a step of a base algorithm. ``SPECS`` lists them and does not import torch."""

from semilearn_ext.plugins.dgwm.spec import DGWM
from semilearn_ext.plugins.fbcsa.spec import FBCSA
from semilearn_ext.plugins.upcsc.spec import SC, UPC, UPCSC

SPECS = (UPC, SC, UPCSC, FBCSA, DGWM)
