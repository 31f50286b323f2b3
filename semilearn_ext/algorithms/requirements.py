"""Check what a method requires of the data and of files, before anything is trained or written."""

from __future__ import annotations

from semilearn_ext.algorithms.compose import register
from semilearn_ext.data.experiment import SSDGData
from semilearn_ext.errors import UserError
from semilearn_ext.plugins.base import ModelSpec
from semilearn_ext.plugins.checks import check_needs
from semilearn_ext.registry import PLUGINS
from semilearn_ext.semilearn_api import ALGORITHMS
from semilearn_ext.settings import Settings


def check(settings: Settings, data: SSDGData) -> None:
    """Raise a UserError if the algorithm or one of its plug-ins cannot run with these settings and data."""
    for name in settings.plugins:
        check_needs(PLUGINS.get(name, "algorithm"), ModelSpec(0, len(data.classes), len(data.sources)))
    if settings.num_warmup_iter >= data.total_steps:
        raise UserError(
            f"{settings.where('num_warmup_iter')}: the warm-up of {settings.num_warmup_iter} steps takes the whole run "
            f"of {data.total_steps}; use a shorter one"
        )
    ALGORITHMS[register(settings.algorithm, settings.step)].check(settings, data)
