"""Find AdaIN's published weights, for the style view of StyleMatch."""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.errors import UserError

ENCODERS = ("vgg_normalised.pth", "vgg_normalised_relu4_1.pth")
DECODER = "decoder.pth"
WHERE_TO_GET = (
    "download decoder.pth and vgg_normalised.pth from the release page of pytorch-AdaIN (naoto0804) and pass their "
    "folder with --adain_dir"
)


def style_files(folder: str) -> tuple[Path, Path]:
    """The files of the encoder and the decoder in ``folder``. The error for a missing one says where to get it."""
    root = Path(folder).expanduser()
    encoder = next((root / name for name in ENCODERS if (root / name).is_file()), None)
    if encoder is None or not (root / DECODER).is_file():
        missing = DECODER if encoder is not None else ENCODERS[0]
        raise UserError(f"adain_dir: no {missing} in {root}, which StyleMatch needs; {WHERE_TO_GET}")
    return encoder, root / DECODER
