"""Check plug-ins before training, and what they return in every step."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from inspect import signature
from typing import TypeGuard

from torch import Tensor, nn

from semilearn_ext.errors import UserError, shown
from semilearn_ext.nets.heads import ClassifierHead
from semilearn_ext.plugins import state
from semilearn_ext.plugins.base import ModelSpec, Plugin, Wants
from semilearn_ext.specs import PluginSpec


def plugin_class(spec: PluginSpec) -> type[Plugin]:
    """The implementation of a plug-in, which must be a subclass of Plugin with the same arguments."""
    implementation = spec.load()
    if not isinstance(implementation, type) or not issubclass(implementation, Plugin):
        raise UserError(f"plug-in {spec.name!r}: {spec.implementation} is not a subclass of Plugin")
    try:
        signature(implementation).bind({}, ModelSpec(0, 0, 0))
    except TypeError:
        raise UserError(
            f"plug-in {spec.name!r}: {implementation.__name__}.__init__ must take the arguments (self, options, model)"
        ) from None
    if hasattr(nn.ModuleDict, spec.name):
        raise UserError(f"plug-in {spec.name!r}: torch uses this name itself; choose another name")
    return implementation


def check_plugin(spec: PluginSpec, plugin: Plugin) -> None:
    """Raise an error for a plug-in that could not be trained or resumed."""
    where = f"plug-in {spec.name!r}: {type(plugin).__name__}"
    if not hasattr(plugin, "logs"):
        raise UserError(f"{where}.__init__ must call super().__init__(options, model)")
    wants: object = plugin.wants
    if wants is not None and not isinstance(wants, Wants):
        raise UserError(f"{where}.wants must be a Wants(...), or None if it adds no losses, got {shown(wants)}")
    if wants is not None and type(plugin).losses is Plugin.losses:
        raise UserError(f"{where} has no method 'losses'; add it, or set wants = None if it adds no losses")
    plugin.get_extra_state()  # state that cannot be saved is an error


def head_of(spec: PluginSpec, plugin: Plugin) -> ClassifierHead | None:
    """The classifier of a plug-in, if it has one. One that could not replace that of a base is an error."""
    where, head = f"plug-in {spec.name!r}: head()", plugin.head()
    if head is None:
        return None
    kind: type = type(head)
    if not issubclass(kind, ClassifierHead):
        raise UserError(f"{where} must return a ClassifierHead or None, got {kind.__name__}")
    if not spec.needs.head:
        raise UserError(f"{where} replaces the classifier, which its spec must declare; add needs=Needs(head=True)")
    state.check_head(spec.name, head)
    return head


def check_needs(spec: PluginSpec, model: ModelSpec) -> None:
    """Raise an error if a plug-in needs more classes or source domains than there are."""
    needs = spec.needs
    if model.num_classes < needs.classes:
        raise UserError(
            f"{spec.name}: needs at least {needs.classes} classes, but the data have only "
            f"{model.num_classes}; use another plug-in"
        )
    if needs.domains and not model.num_domains:
        raise UserError(
            f"{spec.name}: needs domain labels; train on the datasets of semilearn_ext.usb.get_datasets and set "
            f"num_domains to the number of source domains"
        )
    if model.num_domains and model.num_domains < needs.sources:
        raise UserError(
            f"{spec.name}: needs at least {needs.sources} source domains, but there is only {model.num_domains}; "
            f"add a domain"
        )


def check_losses(owner: str, losses: object, logged: Collection[str]) -> dict[str, tuple[float, Tensor]]:
    """Check the losses that the plug-in ``owner`` returned. A term must not have the name of another logged one."""
    if not isinstance(losses, dict):
        raise UserError(f"plug-in {owner!r}: losses must return a dict of (weight, scalar) pairs, got {shown(losses)}")
    for term, pair in losses.items():
        if not isinstance(pair, tuple) or len(pair) != 2 or not _is_scalar_tensor(pair[1]):
            raise UserError(
                f"plug-in {owner!r}: loss {term!r} must be a pair (weight, scalar tensor), got {_described(pair)}"
            )
        if not isinstance(pair[0], int | float):
            raise UserError(f"plug-in {owner!r}: the weight of loss {term!r} must be a number, got {shown(pair[0])}")
        for name in (term, f"{term}_weight"):
            _check_new(owner, name, logged)
        if f"{term}_weight" in losses:
            raise UserError(f"plug-in {owner!r}: '{term}_weight' is the name of a weight; rename the loss")
    return losses


def check_logs(
    owner: str, logs: Mapping[str, object], logged: Collection[str], others: Collection[str]
) -> dict[str, Tensor | float]:
    """Check the numbers that the plug-in ``owner`` wants to record, and return them by name.

    A number of the base algorithm must not be replaced. The names of ``others``, which other plug-ins have recorded in
    this step, are preceded by the owner's: ``sc_candidates``.
    """
    checked: dict[str, Tensor | float] = {}
    for name, value in logs.items():
        if not _is_scalar_tensor(value) and not isinstance(value, int | float):
            raise UserError(f"plug-in {owner!r}: logs[{name!r}] must be a scalar, got {_described(value)}")
        key = f"{owner}_{name}" if name in others else name
        _check_new(owner, key, logged)
        checked[key] = value.detach() if isinstance(value, Tensor) else value
    return checked


def _check_new(owner: str, name: str, logged: Collection[str]) -> None:
    if f"train/{name}" in logged:
        raise UserError(f"plug-in {owner!r}: another logged number is already called {name!r}; choose another name")


def _is_scalar_tensor(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.ndim == 0


def _described(value: object) -> str:
    tensor = value[1] if isinstance(value, tuple) and len(value) == 2 else value
    return f"a tensor of shape {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else shown(value)
