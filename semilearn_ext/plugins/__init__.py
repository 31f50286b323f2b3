"""Plug-ins: importing this registers those that come with the package."""

from semilearn_ext.plugins.base import Labelled, Observation, Plugin, Scene, attach, check, register
from semilearn_ext.plugins.dgwm import DGWM
from semilearn_ext.plugins.fbcsa import FBCSA
from semilearn_ext.plugins.upcsc import SC, UPC, UPCSC
from semilearn_ext.settings.usb_options import Option

__all__ = [
    "DGWM",
    "FBCSA",
    "SC",
    "UPC",
    "UPCSC",
    "Labelled",
    "Observation",
    "Option",
    "Plugin",
    "Scene",
    "attach",
    "check",
    "register",
]
