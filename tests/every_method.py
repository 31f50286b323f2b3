"""Every method in every step it can be trained with, and options with which few steps are enough to see all of it."""

from __future__ import annotations

from typing import Any

from semilearn_ext import registry

METHODS = [
    (name, step) for name in registry.methods() for step in registry.steps_of(registry.parse_method(name, "").base)
]
_KEEP_ALL = ("adamatch", "comatch", "defixmatch", "fixmatch", "flexmatch", "simmatch", "stylematch", "uda")
_EAGER: dict[str, dict[str, Any]] = {
    **{name: {"p_cutoff": 0.0} for name in _KEEP_ALL},
    **{name: {"unsup_warm_up": 0.01} for name in ("meanteacher", "mixmatch", "pimodel", "remixmatch", "vat")},
    "dash": {"num_wu_iter": 2},
    "pseudolabel": {"p_cutoff": 0.0, "unsup_warm_up": 0.01},
}


def eager(name: str, step: str) -> dict[str, Any]:
    """Settings with which the unlabelled loss counts from the beginning."""
    return {"algorithm": name, "step": step, **_EAGER.get(registry.parse_method(name, "").base, {})}


def batch_of(algorithm: Any, epoch: int, step: int) -> dict[str, Any]:
    """The labelled and unlabelled images of one step."""
    makers = [loader.dataset for loader in algorithm.loader_dict.values()]
    return {name: value for maker in makers for name, value in maker[epoch, step].items()}
