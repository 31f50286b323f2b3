"""Plug-ins: importing this registers those that come with the package."""

from semilearn_ext.plugins.base import PLUGINS, Labelled, Observation, Plugin, register
from semilearn_ext.plugins.upcsc import SC, UPC, UPCSC
from semilearn_ext.settings.usb_options import Option

__all__ = ["PLUGINS", "SC", "UPC", "UPCSC", "Labelled", "Observation", "Option", "Plugin", "register"]
