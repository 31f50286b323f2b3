"""Where AdaIN's published weights lie, for the style view of StyleMatch."""

from __future__ import annotations

from pathlib import Path

from semilearn_ext.errors import UserError

ENCODERS = ("vgg_normalised.pth", "vgg_normalised_relu4_1.pth")
DECODER = "decoder.pth"
WHERE_TO_GET = (
    "get decoder.pth and vgg_normalised.pth from the release page of pytorch-AdaIN (naoto0804) and name their folder "
    "with --adain_dir"
)


def style_files(folder: str) -> tuple[Path, Path]:
    """Encoder and decoder in ``folder``, or a UserError that says what is missing and where to get it."""
    root = Path(folder).expanduser()
    encoder = next((root / name for name in ENCODERS if (root / name).is_file()), None)
    if encoder is None or not (root / DECODER).is_file():
        missing = DECODER if encoder is not None else ENCODERS[0]
        raise UserError(f"adain_dir: no {missing} in {root}, and StyleMatch needs it; {WHERE_TO_GET}")
    return encoder, root / DECODER
