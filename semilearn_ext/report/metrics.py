"""The title and the format of a metric, derived from its recorded name."""

from __future__ import annotations

from dataclasses import dataclass

from semilearn_ext.registry import PLUGINS
from semilearn_ext.runs.result import TARGET

IMAGES = {
    "target": "the target domain",
    "source_val": "held-out source images",
    "unlabeled": "unlabelled source images",
    "train": "training batches",
}
AVERAGED = {".ema": " of the EMA weights", ".swa": " of the SWA weights"}
"""Suffixes of metrics that were measured with averaged weights."""
_QUANTITIES = {
    "top1": "accuracy",
    "kept_top1": "accuracy of confident images",
    "ece": "expected calibration error",
}
NOT_METRICS = ("iteration", "epoch", "seconds")
"""Numbers in an evaluation record that give its time and are not metrics."""


@dataclass(frozen=True)
class Metric:
    """A metric by its recorded name, ``<images>/<quantity>``: ``unlabeled/keep_rate``, ``train/upc``."""

    name: str = TARGET

    @property
    def is_target_accuracy(self) -> bool:
        """Whether this is the default metric, which depends on the protocol and is reported in the paper."""
        return self.name == TARGET

    @property
    def is_accuracy(self) -> bool:
        return self.name.removesuffix(self._average).endswith("top1")

    @property
    def _average(self) -> str:
        return next((ending for ending in AVERAGED if self.name.endswith(ending)), "")

    @property
    def is_share(self) -> bool:
        """Whether this is a number between 0 and 1, which is printed in percent."""
        endings = ("_rate", "_ratio", "_share", "/ece", "/pseudo_precision", "/pseudo_recall")
        return self.is_accuracy or self.name.endswith(endings)

    @property
    def factor(self) -> float:
        return 100.0 if self.is_share else 1.0

    @property
    def decimals(self) -> int:
        return 1 if self.is_share else 3

    @property
    def quantity(self) -> str:
        """``accuracy``, ``keep rate``, or the title of the plug-in with this name."""
        quantity = self.name.rpartition("/")[2].removesuffix(self._average)
        plugin = PLUGINS.get(quantity, "metric").title if quantity in PLUGINS else quantity.replace("_", " ")
        title = _QUANTITIES.get(quantity, plugin)
        return title + AVERAGED.get(self._average, "")

    @property
    def title(self) -> str:
        """``keep rate on unlabelled source images``."""
        images = self.name.rpartition("/")[0]
        return f"{self.quantity} on {IMAGES[images]}" if images in IMAGES else self.name

    @property
    def axis(self) -> str:
        """The title with its unit."""
        return f"{self.title} (%)" if self.is_share else self.title
