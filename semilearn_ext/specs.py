"""Specs: declarations of algorithms, plug-ins, datasets and networks that do not need torch.

Every algorithm, plug-in, dataset and network declares itself once, in a spec next to its code. Flags and their checks,
``--help``, ``ssdg list``, titles in tables and figures, the requirements of a plug-in and the method tables of the docs
are derived from these specs. :mod:`semilearn_ext.registry` contains all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field
from importlib import import_module
from typing import Any

from semilearn_ext.errors import UserError

LIMITS = ("minimum", "maximum", "above", "below")
"""The fields that limit a number: ``above`` and ``below`` exclude their value."""


@dataclass(frozen=True)
class Option:
    """One option of an algorithm or plug-in. Its type is the type of the default."""

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    @classmethod
    def of_setting(cls, setting: Field[Any]) -> Option:
        """A general setting as an option, for algorithms that read it from their own arguments."""
        about = {name: setting.metadata[name] for name in ("help", "choices", *LIMITS)}
        return cls(setting.default, **about)

    @property
    def type(self) -> type:
        return type(self.default)


@dataclass(frozen=True)
class Needs:
    """The requirements of a plug-in for its base algorithm and the data."""

    mask: bool = True
    """A base with a mask of confident unlabelled images."""
    domains: bool = False
    """Batches with the source domain of every image."""
    head: bool = False
    """A base whose classifier can be replaced."""
    classes: int = 1
    """Minimum number of classes."""
    sources: int = 1
    """Minimum number of source domains."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The fields that all four kinds of specs have in common."""

    name: str
    title: str
    """The name in tables and figures."""
    about: str
    """A description of one line."""
    paper: str = ""
    """Link to the paper."""
    implementation: str = ""
    """``"package.module:attribute"``, imported on first use."""

    def load(self) -> Any:
        """Import the implementation."""
        return self.load_as(self.implementation)

    def load_as(self, implementation: str) -> Any:
        module, _, attribute = implementation.partition(":")
        try:
            return getattr(import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise UserError(f"{self.name}: cannot load {implementation!r}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class AlgorithmSpec(Spec):
    """A base algorithm: one of USB's, or one of ours in USB's style."""

    options: Mapping[str, Option] = field(default_factory=dict)
    engine: str = ""
    """Implementation for this package's engine, if it differs from ``implementation`` or USB's own class."""
    reference: str = ""
    """Implementation in the SSDG benchmark's step (``step: reference``), if there is one."""
    reads: tuple[str, ...] = ()
    """General settings that it reads from USB's arguments, in addition to its options."""
    needs_domains: bool = False
    """Whether batches must contain the source domain of every image."""
    no_plugins: str = ""
    """Why the algorithm does not support plug-ins; empty if it does."""
    unavailable: str = ""
    """Why the algorithm cannot be used in this package; empty if it can."""
    takes_head: bool = False
    """Whether a plug-in may replace its classifier."""
    labelled_only: bool = False
    """Whether it uses no unlabelled images."""
    weak_needs_cat: bool = False
    """Whether the weak view is computed without gradient with ``use_cat: false``."""
    weak_pair: bool = False
    """Whether both unlabelled views are weak."""
    teacher: bool = False
    """Whether it uses predictions of averaged weights during training."""
    projected_features: bool = False
    """Whether it wraps the network in one that returns a projection instead of the classifier's inputs."""
    draws_on_device: bool = False
    """Whether its own code draws random numbers on the device, so that one step differs between devices."""
    calls_cuda: bool = False
    """Whether its own code calls ``.cuda()``."""
    float32_losses: bool = False
    """Whether its own code needs float32, so that only the network computes in half precision."""
    needs_float32: str = ""
    """Why it does not work in half precision; empty if it does."""


@dataclass(frozen=True, kw_only=True)
class PluginSpec(Spec):
    """A plug-in; ``<base>_<name>`` is the base algorithm with the plug-in."""

    options: Mapping[str, Option] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """A dataset with several domains.

    The implementation is a function ``load(spec, settings) -> Loaded`` (see :mod:`semilearn_ext.data.loaded`). For
    image files, use :class:`semilearn_ext.data.specs.ImageTreeSpec`.
    """

    domains: tuple[str, ...] = ()
    """Names of the domains; empty if they are the folders in ``data_dir``."""
    num_classes: int = 0
    """Number of classes; 0 if it depends on the data."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    in_paper: bool = False
    """Whether the UPCSC paper reports results on it; the packaged configs contain their settings."""
    image_size: int = 0
    """Side of the images in pixels; 0 if they differ."""
    flip: bool = True
    """Whether a mirrored image still belongs to its class, which is not true of digits."""
    few_labels: str = "error"
    """The meaning of ``few_labels: auto``: ``error`` or ``take_all``."""
    splits_folder: str = ""
    """Folder of the published label splits, inside the dataset's folder; empty if there are none."""


@dataclass(frozen=True, kw_only=True)
class NetSpec(Spec):
    """A network. The implementation is ``build(settings) -> builder``; ``builder(num_classes=C)`` returns a network."""

    weights: str = ""
    """The name of its pretrained weights, for records; empty if it has none."""
