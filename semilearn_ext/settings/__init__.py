"""Turn config files and command lines into one typed object. Imports neither torch nor USB."""

from semilearn_ext.settings.fingerprint import config_hash
from semilearn_ext.settings.load import dump, load_settings, read_resolved, settings_from, with_values
from semilearn_ext.settings.schema import Settings

__all__ = [
    "Settings",
    "config_hash",
    "dump",
    "load_settings",
    "read_resolved",
    "settings_from",
    "with_values",
]
