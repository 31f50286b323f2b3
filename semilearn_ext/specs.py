"""What the package knows about a method, plug-in, dataset or network without importing torch.

Every algorithm, plug-in, dataset and network declares itself once, in a spec beside its code. Flags and their checks,
``--help``, ``ssdg list``, titles in tables and figures, the requirements of a plug-in and the method table of the docs
are derived from these specs. The lists of all specs are in :mod:`semilearn_ext.registry`.
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
    """One option of an algorithm or plug-in. Its type is that of the default."""

    default: Any
    help: str
    choices: tuple[str, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    above: float | None = None
    below: float | None = None

    @classmethod
    def of_setting(cls, setting: Field[Any]) -> Option:
        """A general setting, for algorithms that read it from their own arguments."""
        about = {name: setting.metadata[name] for name in ("help", "choices", *LIMITS)}
        return cls(setting.default, **about)

    @property
    def type(self) -> type:
        return type(self.default)


@dataclass(frozen=True)
class Needs:
    """What a plug-in needs of its base algorithm and of the data."""

    mask: bool = True
    """The base decides which unlabelled images it is confident of."""
    domains: bool = False
    """Batches carry the number of every image's source domain."""
    head: bool = False
    """The base lets a plug-in replace its classifier."""
    classes: int = 1
    """The smallest number of classes."""
    sources: int = 1
    """The smallest number of source domains."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What all four kinds have in common."""

    name: str
    title: str
    """As tables and figures show it."""
    about: str
    """One line."""
    paper: str = ""
    """Link to the paper."""
    implementation: str = ""
    """``"package.module:attribute"``, imported when it is first needed."""

    def load(self) -> Any:
        """The implementation."""
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
    """Implementation for this package's engine where it differs; by default ``implementation``, or USB's own class."""
    reference: str = ""
    """Implementation of the same algorithm in the SSDG benchmark's step (``step: reference``), if there is one."""
    reads: tuple[str, ...] = ()
    """General settings that it reads from USB's arguments besides its options."""
    needs_domains: bool = False
    """Batches must carry the number of every image's source domain."""
    no_plugins: str = ""
    """Why the algorithm cannot take plug-ins; empty if it can."""
    unavailable: str = ""
    """Why the algorithm cannot run in this setting; empty if it can."""
    takes_head: bool = False
    """A plug-in may replace its classifier."""
    labelled_only: bool = False
    """No unlabelled image is used."""
    weak_needs_cat: bool = False
    """With ``use_cat: false`` the weak view is computed without gradient."""
    weak_pair: bool = False
    """Both unlabelled views are weak."""
    teacher: bool = False
    """Averaged weights predict during training."""
    projected_features: bool = False
    """It wraps the network in one that returns a projection instead of the classified features."""
    calls_cuda: bool = False
    """Its own code calls ``.cuda()``."""
    float32_losses: bool = False
    """Its own code needs float32: only the network computes in half precision."""
    needs_float32: str = ""
    """Why it does not work in half precision; empty if it does."""


@dataclass(frozen=True, kw_only=True)
class PluginSpec(Spec):
    """A plug-in: ``<base>_<name>`` is the base algorithm with it."""

    options: Mapping[str, Option] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True, kw_only=True)
class DatasetSpec(Spec):
    """A dataset of several domains. The implementation is ``load(spec, settings) -> Loaded``, see
    :mod:`semilearn_ext.data.loaded`; for image files there is :class:`semilearn_ext.data.specs.ImageTreeSpec`."""

    domains: tuple[str, ...] = ()
    """Empty: the folders in ``data_dir``."""
    num_classes: int = 0
    """0: as many as the data have."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    in_paper: bool = False
    """The UPCSC paper has results on it; the settings of its runs are in the shipped configs."""
    image_size: int = 0
    """Side of the images in pixels; 0: they differ."""
    flip: bool = True
    """A mirrored image still shows its class; not so for digits."""
    few_labels: str = "error"
    """What ``few_labels: auto`` means: ``error`` or ``take_all``."""
    splits_folder: str = ""
    """Where the published label splits are, in the dataset's own folder; empty: there are none."""


@dataclass(frozen=True, kw_only=True)
class NetSpec(Spec):
    """A network. The implementation is ``build(settings) -> builder``, and ``builder(num_classes=C)`` makes one."""

    weights: str = ""
    """Its own pretrained weights, as records name them; empty: it has none."""
