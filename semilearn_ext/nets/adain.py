"""AdaIN style transfer: the content of one image in the style of another.

Huang and Belongie, "Arbitrary Style Transfer in Real-time with Adaptive Instance Normalization" (ICCV 2017,
https://arxiv.org/abs/1703.06868). The published weights are used: ``decoder.pth`` and ``vgg_normalised.pth``, of which
only the layers up to relu4_1 are needed, so a file truncated after these layers works as well.
"""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from torch import Tensor, nn

from semilearn_ext.errors import UserError
from semilearn_ext.settings.style_files import WHERE_TO_GET, style_files

_STRIDE = 8
_FEATURES = 512
_EPS = 1e-5


def _block(channels: int, width: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(channels, width, 3), nn.ReLU()]


def build_encoder() -> nn.Sequential:
    """A normalising 1x1 convolution and VGG-19 up to relu4_1, with modules numbered as in the file of weights."""
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]
    channels = 3
    for repeats, width in ((2, 64), (2, 128), (4, 256)):
        for _ in range(repeats):
            layers += _block(channels, width)
            channels = width
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers, *_block(channels, _FEATURES))


def build_decoder() -> nn.Sequential:
    """The mirrored encoder: three upsamplings by a factor of two, and no activation at the end."""
    layers: list[nn.Module] = []
    channels = _FEATURES
    for widths in ((256,), (256, 256, 256, 128), (128, 64)):
        for width in widths:
            layers += _block(channels, width)
            channels = width
        layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
    return nn.Sequential(*layers, *_block(channels, 64), nn.ReflectionPad2d(1), nn.Conv2d(64, 3, 3))


def adain(content: Tensor, style: Tensor) -> Tensor:
    """Equation 8: give the content's features (N, F, h, w) the mean and deviation of the style's, per channel."""
    (content_var, content_mean), (style_var, style_mean) = (
        torch.var_mean(features, dim=(2, 3), keepdim=True) for features in (content, style)
    )
    return (content - content_mean) * ((style_var + _EPS) / (content_var + _EPS)).sqrt() + style_mean


class StyleTransfer(nn.Module):
    """A frozen encoder and decoder for images (N, 3, H, W) in [0, 1]. Each computes in the precision of its weights."""

    def __init__(self, encoder: nn.Sequential, decoder: nn.Sequential) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        # With the channels-last format, convolutions of this shape take about 60 % of the time.
        self.eval().requires_grad_(False).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def encode(self, images: Tensor) -> Tensor:
        """Encode images as (N, 512, h, w), where h and w are an eighth of the side, rounded up."""
        features: Tensor = self.encoder(self._as_weights(images))
        return features

    def decode(self, content: Tensor, style: Tensor, alpha: float, size: int) -> Tensor:
        """Equation 14: decode content in another style to images (N, 3, size, size); ``alpha`` is the style's strength.

        As in the released StyleMatch, the result is not clamped: about 2 % of the values lie outside [0, 1].
        """
        mixed = torch.lerp(content, adain(content, style), alpha)
        pictures: Tensor = self.decoder(self._as_weights(mixed))
        return pictures[..., :size, :size]

    def _as_weights(self, batch: Tensor) -> Tensor:
        return batch.to(next(self.parameters()).dtype, memory_format=torch.channels_last)


def encoded_bytes(images: int, size: int) -> int:
    """Memory in bytes for the encodings of ``images`` images of ``size`` pixels."""
    return 4 * images * _FEATURES * (-(-size // _STRIDE)) ** 2


@functools.lru_cache(maxsize=1)
def load_style_transfer(folder: str) -> StyleTransfer:
    """Load the published networks from ``folder``."""
    encoder_file, decoder_file = style_files(folder)
    # Building the networks must not change the random numbers of a run.
    with torch.random.fork_rng(devices=[]):
        return StyleTransfer(_with_weights(build_encoder(), encoder_file), _with_weights(build_decoder(), decoder_file))


def _with_weights(network: nn.Sequential, path: Path) -> nn.Sequential:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        network.load_state_dict({name: content[name].float() for name in network.state_dict()})
        if not all(value.isfinite().all() for value in network.state_dict().values()):
            raise ValueError("it contains values that are not finite")
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        raise UserError(f"adain_dir: {path}: not AdaIN's published weights ({reason}); {WHERE_TO_GET}") from None
    return network
