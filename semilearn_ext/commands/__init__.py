"""The commands of ``python -m semilearn_ext``, a module each.

A module has ``HELP``, ``add(parser)`` and what it calls. What a command needs it imports when it is called, so that
``--help`` and the light commands answer at once.
"""
