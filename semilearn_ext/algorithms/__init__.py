"""Base algorithms. ``SPECS`` lists them without importing torch; ``semilearn_ext.usb`` registers them with USB."""

from semilearn_ext.algorithms import usb_specs
from semilearn_ext.algorithms.erm_spec import ERM
from semilearn_ext.algorithms.stylematch_spec import STYLEMATCH

USB_NAMES = usb_specs.USB_NAMES
SPECS = (*usb_specs.SPECS, ERM, STYLEMATCH)
