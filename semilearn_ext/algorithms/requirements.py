"""What a method needs of the data and of files, looked at before anything is trained or written."""

from __future__ import annotations

from semilearn_ext import plugins
from semilearn_ext.data.ssdg import SSDGData
from semilearn_ext.errors import UserError
from semilearn_ext.nets.adain import load_style_transfer
from semilearn_ext.settings import Settings
from semilearn_ext.settings.methods import parse_name


def check(settings: Settings, data: SSDGData) -> None:
    method = parse_name(settings.algorithm, settings.where("algorithm"))
    plugins.check(method.plugins, len(data.classes), len(data.sources))
    if method.base == "stylematch":
        if len(data.sources) < 2:
            raise UserError(
                f"{settings.where('source_domains')}: stylematch takes its styles from another source domain, but "
                f"there is only {data.sources[0]!r}; add a domain, or use fixmatch"
            )
        load_style_transfer(settings.adain_dir)
