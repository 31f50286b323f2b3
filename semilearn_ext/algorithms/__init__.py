"""Importing this registers everything with USB's algorithm registry.

USB's own names keep USB's own classes; beside each stands ``ssdg_<name>``, the same algorithm on any device and
on leave-one-domain-out data. ``<base>_<plugin>`` is that with a plug-in: ``fixmatch_upcsc``. USB's
``semilearn.algorithms.get_algorithm`` builds any of them.
"""

from __future__ import annotations

from semilearn_ext.algorithms import erm, stylematch
from semilearn_ext.algorithms.compose import register, registry_name
from semilearn_ext.settings.methods import known_names

__all__ = ["erm", "register", "registry_name", "stylematch"]

for _name in known_names():
    register(_name)
