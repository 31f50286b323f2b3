"""The commands of ``ssdg``, one module each.

A command module defines ``HELP``, its line in ``ssdg --help``, and ``add(parser)``, which declares its options and sets
``call``. Heavy dependencies are imported inside the called function, so that ``--help`` is fast.
"""
