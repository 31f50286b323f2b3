"""Plug-ins see one step of a base algorithm and add to its loss. Their specs are listed here, without torch."""

from semilearn_ext.plugins.dgwm.spec import DGWM
from semilearn_ext.plugins.fbcsa.spec import FBCSA
from semilearn_ext.plugins.upcsc.spec import SC, UPC, UPCSC

SPECS = (UPC, SC, UPCSC, FBCSA, DGWM)
