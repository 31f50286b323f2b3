"""A finished run's predictions for anybody's images: ``Predictor.load(run)(images)``.

Images are decoded as in training and seen plain, without augmentation. The run's own data need not be there.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from semilearn_ext.analysis.features import features
from semilearn_ext.analysis.finished import open_run
from semilearn_ext.analysis.rebuild import Rebuilt, rebuild, rebuild_without_images
from semilearn_ext.data import views
from semilearn_ext.data.decode import BadImage, decode, read, to_rgb
from semilearn_ext.data.trees import IMAGE_ENDINGS
from semilearn_ext.engine.confidence import ReadOnlyView, would_keep
from semilearn_ext.engine.device import to_device
from semilearn_ext.errors import UserError
from semilearn_ext.settings.methods import parse_name

COLUMNS = ("image", "class", "probability", "confident", "problem")


@dataclass(frozen=True)
class Predictor:
    """Classifies images by a finished run's network.

    Attributes:
        classes: their names, in the order of the logits.
        no_confidence: why the run's method cannot say whether it is confident, or an empty string.
    """

    rebuilt: Rebuilt
    labelled_logits: Tensor
    no_confidence: str = ""

    @classmethod
    def load(cls, run: str | Path, device: str = "auto") -> Predictor:
        """``run`` is the folder of a finished run."""
        rebuilt = rebuild_without_images(open_run(Path(run)), device)
        settings = rebuilt.data.settings
        if "MaskingHook" not in rebuilt.algorithm.hooks_dict:
            return cls(rebuilt, torch.empty(0), f"{settings.algorithm} parts no confident from unconfident images")
        if parse_name(settings.algorithm, "algorithm").base == "adamatch":
            return cls._with_labelled_images(rebuilt, device)
        return cls(rebuilt, torch.zeros(1, len(rebuilt.data.classes), device=rebuilt.device))

    @classmethod
    def _with_labelled_images(cls, rebuilt: Rebuilt, device: str) -> Predictor:
        """AdaMatch's threshold is relative to its confidence on labelled images, so they have to be there."""
        try:
            whole = rebuild(rebuilt.run, device)
        except UserError as error:
            return cls(rebuilt, torch.empty(0), f"its threshold depends on its labelled images ({error})")
        logits = features(whole, whole.data.split.labelled).logits
        return cls(rebuilt, torch.from_numpy(logits).to(rebuilt.device))

    @property
    def classes(self) -> tuple[str, ...]:
        return self.rebuilt.data.classes

    def __call__(self, images: Sequence[str | Path | Image.Image] | Tensor) -> pd.DataFrame:
        """A row an image: its path or number, class, probability, whether the method would have called it confident
        (None where it cannot say), and what is wrong with it.

        Args:
            images: paths, PIL images, or uint8 (N, 3, H, W).
        """
        if isinstance(images, Tensor) and (images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3):
            raise UserError(f"images: expected uint8 (N, 3, H, W), got {images.dtype} {tuple(images.shape)}")
        rows: list[dict[str, Any]] = []
        bar = tqdm(total=len(images), desc="predicting", unit="img", disable=None, leave=False)
        with bar:
            for start in range(0, len(images), self._batch_size):
                part = images[start : start + self._batch_size]
                rows += self._batch(part, start)
                bar.update(len(part))
        return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"confident": object})

    @property
    def _batch_size(self) -> int:
        # FlexMatch looks up what it remembers of as many unlabelled images as there are in a batch.
        return min(self.rebuilt.data.settings.eval_batch_size, len(self.rebuilt.data.split.unlabelled))

    def _batch(self, images: Any, first: int) -> list[dict[str, Any]]:
        decoded = list(self._pixels(images))
        whole = [pixels for pixels in decoded if not isinstance(pixels, str)]
        answers = self._classify(torch.stack(whole)) if whole else iter(())
        rows = []
        for number, (image, pixels) in enumerate(zip(images, decoded, strict=True), start=first):
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            row["image"] = str(image) if isinstance(image, str | Path) else number
            row["problem"] = pixels if isinstance(pixels, str) else ""
            if not isinstance(pixels, str):
                row["class"], row["probability"], row["confident"] = next(answers)
            rows.append(row)
        return rows

    def _pixels(self, images: Any) -> Iterator[Tensor | str]:
        """uint8 (3, size, size), or what is wrong with the image; a tensor's images as they are."""
        size = self.rebuilt.data.settings.img_size
        for image in images:
            try:
                if isinstance(image, Tensor):
                    yield image
                elif isinstance(image, Image.Image):
                    picture = to_rgb(image).resize((size, size), Image.Resampling.BILINEAR)
                    yield torch.from_numpy(np.array(picture).transpose(2, 0, 1))
                else:
                    yield torch.from_numpy(decode(read(Path(image)), size).copy())
            except BadImage as error:
                yield str(error)

    @torch.inference_mode()
    def _classify(self, pixels: Tensor) -> Iterator[tuple[str, float, bool | None]]:
        data = self.rebuilt.data
        x = to_device(views.plain(pixels, data.view), self.rebuilt.device, data.settings.channels_last)
        logits = self.rebuilt.net(x)["logits"].float()
        probability, number = logits.softmax(1).max(1)
        confident = [None] * len(logits) if self.no_confidence else (self._weights(logits) >= 1).tolist()
        names = [self.classes[k] for k in number.tolist()]
        return iter(zip(names, probability.tolist(), confident, strict=True))

    def _weights(self, logits: Tensor) -> Tensor:
        hooks = self.rebuilt.algorithm.hooks_dict
        frozen = {name: _frozen(hooks[name]) for name in ("MaskingHook", "DistAlignHook") if name in hooks}
        weight = would_keep(ReadOnlyView(self.rebuilt.algorithm, hooks_dict=frozen), logits, self.labelled_logits)
        assert weight is not None
        return weight


def _frozen(hook: Any) -> Any:
    """A copy that keeps what it learnt from training: no image's answer depends on the others beside it."""
    hook = copy.copy(hook)
    hook.update = hook.update_p = _nothing
    return hook


def _nothing(*_: Any, **__: Any) -> None:
    """Instead of a hook's update."""


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The files in ``paths`` as they are, and every image below the folders in it, by name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_ENDINGS and p.is_file())
            if not below:
                raise UserError(f"{path}: no images in there ({', '.join(IMAGE_ENDINGS)})")
            found += below
        elif path.exists():
            found.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    return found
