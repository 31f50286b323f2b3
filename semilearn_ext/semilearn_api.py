"""Everything that this package imports from USB (``semilearn`` 0.3.2)."""

from __future__ import annotations

import warnings

# USB imports a name that timm has moved, which users cannot do anything about.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import semilearn.nets as nets
    from semilearn.algorithms import get_algorithm
    from semilearn.algorithms.dash.dash import Dash
    from semilearn.algorithms.dash.utils import DashThresholdingHook
    from semilearn.algorithms.fixmatch.fixmatch import FixMatch
    from semilearn.algorithms.softmatch.softmatch import SoftMatch
    from semilearn.algorithms.utils import SSL_Argument, concat_all_gather, str2bool
    from semilearn.core import AlgorithmBase
    from semilearn.core.hooks import AimHook, EMAHook, Hook, ParamUpdateHook, WANDBHook
    from semilearn.core.utils import ALGORITHMS, EMA, TBLog

__all__ = [
    "ALGORITHMS",
    "EMA",
    "AimHook",
    "AlgorithmBase",
    "Dash",
    "DashThresholdingHook",
    "EMAHook",
    "FixMatch",
    "Hook",
    "ParamUpdateHook",
    "SSL_Argument",
    "SoftMatch",
    "TBLog",
    "WANDBHook",
    "concat_all_gather",
    "get_algorithm",
    "nets",
    "str2bool",
]
