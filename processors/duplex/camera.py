"""A picture of the camera, as an engine sees it: decoded, no larger than it may be, off the loop.

In: the bytes of a frame, raw RGB or a file (JPEG, PNG, WebP). Out: uint8, (height, width, 3). A client may
send anything: what is no picture, another size than it says, or larger than ``most_pixels`` is refused before
it is decoded, since a small file may hold a very large picture. Pure but for the decoder; blocks.
"""

import io

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field

from core.errors import MediaError

CHANNELS = 3
FORMATS = ("JPEG", "PNG", "WEBP")


class CameraSettings(BaseModel):
    """What is taken for a picture."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    most_bytes: int = Field(8_000_000, ge=1_000, le=100_000_000, description="of a file")
    most_pixels: int = Field(
        9_000_000, ge=10_000, le=100_000_000, description="a larger picture is refused before it is decoded"
    )
    longest_px: int = Field(
        1_344, ge=64, le=8_192, description="a longer side is scaled down to this: three tiles of 448"
    )


def decoded(image: bytes, size: tuple[int, int], format: str | None, settings: CameraSettings) -> np.ndarray:
    """One frame: uint8, (height, width, 3).

    Args:
        image: the bytes.
        size: (width, height), of raw pixels; a file says its own.
        format: "RGB" for raw pixels; anything else, or None, is a file.
        settings: bounds.

    Raises:
        MediaError: no picture, or one that is too large.
    """
    if len(image) > max(settings.most_bytes, CHANNELS * settings.most_pixels):
        raise MediaError(f"a picture of {len(image)} bytes is too large")
    picture = _raw(image, size, settings) if format == "RGB" else _file(image, settings)
    longest = max(picture.size)
    if longest > settings.longest_px:
        scale = settings.longest_px / longest
        width, height = (max(1, round(side * scale)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(picture, dtype=np.uint8)


def _raw(image: bytes, size: tuple[int, int], settings: CameraSettings) -> Image.Image:
    width, height = size
    if width < 1 or height < 1 or len(image) != width * height * CHANNELS:
        raise MediaError(f"{len(image)} bytes are no RGB picture of {width} by {height}")
    _check_pixels(width, height, settings)
    return Image.frombytes("RGB", (width, height), image)


def _file(image: bytes, settings: CameraSettings) -> Image.Image:
    if len(image) > settings.most_bytes:
        raise MediaError(f"a picture file of {len(image)} bytes is too large")
    try:
        with Image.open(io.BytesIO(image), formats=FORMATS) as opened:
            _check_pixels(*opened.size, settings)
            # A JPEG is decoded at a fraction of its size where that is enough.
            opened.draft("RGB", (settings.longest_px, settings.longest_px))
            return opened.convert("RGB")
    except MediaError:
        raise
    except Exception as error:  # decoders raise what they like on bytes of a stranger
        raise MediaError(f"not a picture: {type(error).__name__}") from error


def _check_pixels(width: int, height: int, settings: CameraSettings) -> None:
    if width * height > settings.most_pixels:
        raise MediaError(f"a picture of {width} by {height} is too large")
