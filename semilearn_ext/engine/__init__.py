"""What makes any USB algorithm portable: devices, data, parameter groups, evaluation, records, checkpoints."""

import warnings

# USB imports a name that timm has moved; its users can do nothing about the warning.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)
    import semilearn.core  # noqa: F401
