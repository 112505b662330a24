"""Pictures of a socket's client: their limits, and their decoding."""

import io
from dataclasses import dataclass

from PIL import Image


@dataclass(frozen=True, slots=True)
class PictureLimits:
    """Limits of a client's pictures.

    Attributes:
        most_pixels: a file that declares more is not decoded.
        longest_px: a longer side is scaled down to this.
    """

    most_pixels: int = 9_000_000
    longest_px: int = 1_344


def as_rgb(data: bytes, limits: PictureLimits) -> tuple[tuple[int, int], bytes]:
    """Return (width, height) and raw RGB of a picture's file, within the limits. Blocks.

    Raises ValueError for a file with more pixels than ``most_pixels``.
    """
    with Image.open(io.BytesIO(data), formats=("JPEG", "PNG", "WEBP")) as picture:
        if picture.width * picture.height > limits.most_pixels:
            raise ValueError(f"over {limits.most_pixels} pixels")
        side_px = limits.longest_px
        # A JPEG is decoded smaller at once.
        picture.draft("RGB", (side_px, side_px))
        rgb = picture.convert("RGB")
        rgb.thumbnail((side_px, side_px))
        return rgb.size, rgb.tobytes()
