"""What a method needs of the data and of files, looked at before anything is trained or written."""

from __future__ import annotations

from semilearn_ext import plugins
from semilearn_ext.algorithms.compose import register
from semilearn_ext.data.ssdg import SSDGData
from semilearn_ext.engine.context import registry_name
from semilearn_ext.settings import Settings
from semilearn_ext.usb import ALGORITHMS


def check(settings: Settings, data: SSDGData) -> None:
    """Ask the algorithm and its plug-ins, each of which raises a UserError where it cannot work."""
    register(settings.algorithm, settings.step)
    algorithm = ALGORITHMS[registry_name(settings.algorithm, settings.step)]
    plugins.check(algorithm.plugin_names, len(data.classes), len(data.sources))
    algorithm.check(settings, data)
