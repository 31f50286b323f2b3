"""Plug-ins: importing this registers those that come with the package."""

from semilearn_ext.plugins.base import Labelled, Observation, Plugin, attach, register
from semilearn_ext.plugins.upcsc import SC, UPC, UPCSC
from semilearn_ext.settings.usb_options import Option

__all__ = ["SC", "UPC", "UPCSC", "Labelled", "Observation", "Option", "Plugin", "attach", "register"]
