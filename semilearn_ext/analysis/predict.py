"""Classify any images with a finished run: ``Predictor.load(run)(images)``.

Images are preprocessed as in the run's own evaluations (``test_view``). The data of the run are not needed.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from semilearn_ext.analysis.features import features
from semilearn_ext.analysis.load_model import LoadedModel, load_model, load_model_without_images
from semilearn_ext.analysis.load_run import load_run
from semilearn_ext.data import views
from semilearn_ext.data.decode import BadImage, center_crop, decode, read, squash, to_pixels, to_rgb
from semilearn_ext.engine.device import evaluation_batch, to_device
from semilearn_ext.errors import UserError
from semilearn_ext.files import IMAGE_EXTENSIONS
from semilearn_ext.plugins.confidence import ReadOnlyView, confidence_mask

COLUMNS = ("image", "class", "probability", "confident", "problem")


@dataclass(frozen=True)
class Predictor:
    """Classifies images with the network of a finished run.

    Attributes:
        classes: names of the classes, in the order of the logits.
        no_confidence: why the method cannot decide whether it is confident; empty if it can.
    """

    loaded: LoadedModel
    labelled_logits: Tensor
    no_confidence: str = ""

    @classmethod
    def load(cls, run: str | Path, device: str = "auto") -> Predictor:
        """Load the finished run in the folder ``run``."""
        loaded = load_model_without_images(load_run(Path(run)), device)
        settings = loaded.data.settings
        if "MaskingHook" not in loaded.algorithm.hooks_dict:
            return cls(loaded, torch.empty(0), f"{settings.algorithm} has no confidence threshold")
        if settings.base == "adamatch":
            return cls._with_labelled_images(loaded, device)
        return cls(loaded, torch.zeros(1, len(loaded.data.classes), device=loaded.device))

    @classmethod
    def _with_labelled_images(cls, loaded: LoadedModel, device: str) -> Predictor:
        """A predictor for AdaMatch, whose threshold is relative to its confidence on the labelled images."""
        try:
            with_images = load_model(loaded.run, device)
        except UserError as error:
            return cls(loaded, torch.empty(0), f"the threshold depends on the labelled images of the run ({error})")
        logits = features(with_images, with_images.data.split.labelled).logits
        return cls(loaded, torch.from_numpy(logits).to(loaded.device))

    @property
    def classes(self) -> tuple[str, ...]:
        return self.loaded.data.classes

    def __call__(self, images: Sequence[str | Path | Image.Image] | Tensor) -> pd.DataFrame:
        """One row per image: its path or number, the predicted class and its probability, whether the method is
        confident about it (None if it cannot decide), and the problem if the image cannot be read.

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
        # FlexMatch looks up the state of as many unlabelled images as there are in a batch.
        return min(
            evaluation_batch(self.loaded.data.settings, self.loaded.device), len(self.loaded.data.split.unlabelled)
        )

    def _batch(self, images: Any, first: int) -> list[dict[str, Any]]:
        decoded = list(self._pixels(images))
        readable = [pixels for pixels in decoded if not isinstance(pixels, str)]
        predictions = self._classify(torch.stack(readable)) if readable else iter(())
        rows = []
        for number, (image, pixels) in enumerate(zip(images, decoded, strict=True), start=first):
            row: dict[str, Any] = dict.fromkeys(COLUMNS)
            # Names that are not valid text are shown with escape sequences.
            is_path = isinstance(image, str | Path)
            row["image"] = os.fsencode(image).decode("utf-8", "backslashreplace") if is_path else number
            row["problem"] = pixels if isinstance(pixels, str) else ""
            if not isinstance(pixels, str):
                row["class"], row["probability"], row["confident"] = next(predictions)
            rows.append(row)
        return rows

    def _pixels(self, images: Any) -> Iterator[Tensor | str]:
        """Yield the test view, uint8 (3, size, size), or the reason why the image cannot be read."""
        settings = self.loaded.data.settings
        resize = center_crop if settings.test_view == "center" else squash
        for image in images:
            try:
                yield torch.from_numpy(to_pixels(resize(_open(image), settings.img_size)))
            except BadImage as error:
                yield str(error)

    @torch.inference_mode()
    def _classify(self, pixels: Tensor) -> Iterator[tuple[str, float, bool | None]]:
        data = self.loaded.data
        x = to_device(views.plain(pixels, data.view), self.loaded.device, data.settings.channels_last)
        logits = self.loaded.net(x)["logits"].float()
        probability, number = logits.softmax(1).max(1)
        confident = [None] * len(logits) if self.no_confidence else (self._weights(logits) >= 1).tolist()
        names = [self.classes[k] for k in number.tolist()]
        return iter(zip(names, probability.tolist(), confident, strict=True))

    def _weights(self, logits: Tensor) -> Tensor:
        hooks = self.loaded.algorithm.hooks_dict
        frozen = {name: _frozen(hooks[name]) for name in ("MaskingHook", "DistAlignHook") if name in hooks}
        weight = confidence_mask(ReadOnlyView(self.loaded.algorithm, hooks_dict=frozen), logits, self.labelled_logits)
        assert weight is not None
        return weight


def _open(image: str | Path | Image.Image | Tensor) -> Image.Image:
    if isinstance(image, Tensor):
        return Image.fromarray(image.permute(1, 2, 0).contiguous().cpu().numpy())
    return to_rgb(image) if isinstance(image, Image.Image) else decode(read(Path(image)))


def _frozen(hook: Any) -> Any:
    """A copy that is not updated, so that the prediction for an image does not depend on the rest of its batch."""
    hook = copy.copy(hook)
    hook.update = hook.update_p = _no_update
    return hook


def _no_update(*_: Any, **__: Any) -> None:
    """Replaces the update of a hook."""


def image_files(paths: Iterable[Path]) -> list[Path]:
    """The files in ``paths``, and all images in and below the folders in ``paths``, sorted by name."""
    images: list[Path] = []
    for path in paths:
        if path.is_dir():
            below = sorted(p for p in path.rglob("*") if p.suffix.lower() in IMAGE_EXTENSIONS and not p.is_dir())
            if not below:
                raise UserError(f"{path}: contains no images ({', '.join(IMAGE_EXTENSIONS)})")
            images += below
        elif path.exists():
            images.append(path)
        else:
            raise UserError(f"{path}: no such file or folder")
    return images
