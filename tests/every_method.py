"""Every method with every step that it supports, and options with which all its losses are active after a few steps."""

from __future__ import annotations

from typing import Any

from semilearn_ext import registry

METHODS = [
    (name, step) for name in registry.methods() for step in registry.steps_of(registry.parse_method(name, "").base)
]
_KEEP_ALL = ("adamatch", "comatch", "defixmatch", "fixmatch", "flexmatch", "simmatch", "stylematch", "uda")
_ACTIVE_LOSS: dict[str, dict[str, Any]] = {
    **{name: {"p_cutoff": 0.0} for name in _KEEP_ALL},
    **{name: {"unsup_warm_up": 0.01} for name in ("meanteacher", "mixmatch", "pimodel", "remixmatch", "vat")},
    "dash": {"num_wu_iter": 2},
    "pseudolabel": {"p_cutoff": 0.0, "unsup_warm_up": 0.01},
}


def active_loss(name: str, step: str) -> dict[str, Any]:
    """Settings with which the unlabelled loss is not zero from the first step."""
    return {"algorithm": name, "step": step, **_ACTIVE_LOSS.get(registry.parse_method(name, "").base, {})}


def batch_of(algorithm: Any, epoch: int, step: int) -> dict[str, Any]:
    """The labelled and unlabelled images of one step."""
    makers = [loader.dataset for loader in algorithm.loader_dict.values()]
    return {name: value for maker in makers for name, value in maker[epoch, step].items()}
