"""Style transfer: the published networks, their effect on real images, and invalid files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semilearn_ext.errors import UserError
from semilearn_ext.nets.adain import adain, build_encoder, encoded_bytes, load_style_transfer
from tests.conftest import SHARED

PUBLISHED = SHARED / "weights" / "adain"
PACS = SHARED / "data" / "pacs" / "images"
needs_weights = pytest.mark.skipif(not PUBLISHED.is_dir(), reason="needs the published weights in ../shared")


def picture(domain: str, label: str) -> torch.Tensor:
    """(1, 3, 128, 128) in [0, 1]: the first image of a class."""
    path = sorted((PACS / domain / label).iterdir())[0]
    pixels = np.asarray(Image.open(path).convert("RGB"), np.float32) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def test_features_take_on_the_statistics_of_the_style() -> None:
    content, style = torch.randn(2, 5, 8, 8), 3 * torch.randn(2, 5, 6, 6) + 1
    moved = adain(content, style)
    torch.testing.assert_close(moved.mean((2, 3)), style.mean((2, 3)), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(moved.std((2, 3)), style.std((2, 3)), rtol=1e-3, atol=1e-3)


@needs_weights
def test_without_style_a_real_image_is_reconstructed() -> None:
    transfer = load_style_transfer(str(PUBLISHED))
    dog = picture("photo", "dog")
    encoded = transfer.encode(dog)
    reconstructed = transfer.decode(encoded, encoded, 0.0, 128)
    assert reconstructed.shape == dog.shape
    assert float((reconstructed - dog).abs().mean()) < 0.12
    assert float(torch.corrcoef(torch.stack([reconstructed.flatten(), dog.flatten()]))[0, 1]) > 0.7


@needs_weights
def test_an_image_takes_on_the_colours_of_a_sketch() -> None:
    """A sketch has no colour, so the more of its style an image takes on, the less colour it has."""
    transfer = load_style_transfer(str(PUBLISHED))
    content, style = (transfer.encode(picture(domain, "house")) for domain in ("cartoon", "sketch"))

    def colour(alpha: float) -> float:
        return float(transfer.decode(content, style, alpha, 128).std(dim=1).mean())

    assert colour(1.0) < colour(0.5) < colour(0.0)


@pytest.mark.parametrize("size", [32, 50])
def test_images_keep_their_size(size: int, adain_dir: Path) -> None:
    transfer = load_style_transfer(str(adain_dir))
    encoded = transfer.encode(torch.rand(2, 3, size, size))
    assert encoded.numel() * 4 == encoded_bytes(2, size)
    result = transfer.decode(encoded, encoded.flip(0), 0.5, size)
    assert result.shape == (2, 3, size, size)
    assert not result.requires_grad


def test_the_whole_published_encoder_is_accepted(tmp_path: Path, adain_dir: Path) -> None:
    """Users may have the file with all layers of VGG-19, which contains more names."""
    encoder = build_encoder().state_dict()
    torch.save({**encoder, "32.weight": torch.zeros(512, 512, 3, 3)}, tmp_path / "vgg_normalised.pth")
    shutil.copy(adain_dir / "decoder.pth", tmp_path)
    loaded = load_style_transfer(str(tmp_path)).encoder.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in encoder.items())


def test_a_missing_or_wrong_file_is_a_clear_error(tmp_path: Path, adain_dir: Path) -> None:
    with pytest.raises(UserError, match=r"no vgg_normalised.pth in .*; download decoder.pth"):
        load_style_transfer(str(tmp_path))
    torch.save({"0.weight": torch.zeros(3)}, tmp_path / "vgg_normalised.pth")
    with pytest.raises(UserError, match=r"no decoder\.pth in"):
        load_style_transfer(str(tmp_path))
    shutil.copy(adain_dir / "decoder.pth", tmp_path)
    with pytest.raises(UserError, match=r"vgg_normalised\.pth: not AdaIN's published weights"):
        load_style_transfer(str(tmp_path))
    (tmp_path / "vgg_normalised.pth").write_text("<html>not found</html>")
    with pytest.raises(UserError, match=r"vgg_normalised\.pth: not AdaIN's published weights"):
        load_style_transfer(str(tmp_path))
