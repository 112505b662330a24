"""Pictures for a model: checked, decoded, scaled down and encoded again. Blocks: call it in a thread.

Input: the bytes of a file (JPEG, PNG, WebP) or raw RGB, from a client that may send anything. A picture of
too many pixels is refused by its header, before it is decoded: a small file may hold a very large picture. A
file whose content is of another type than stated, or that ends early, is refused too. Output: an RGB picture,
or a JPEG file of bounded size without the original's metadata (a photograph names the place where it was
taken), turned upright as its camera recorded it.

Every stored file is thus one that this process has read completely, so a provider does not refuse it.
"""

import base64
import binascii
import io

from PIL import Image, ImageOps
from pydantic import Field

from parley.core.errors import MediaError
from parley.core.pictures import MEDIA_TYPES, Picture, picture_key
from parley.core.strict_model import StrictModel

CHANNELS = 3
FORMATS = ("JPEG", "PNG", "WEBP")
_TYPE_OF_FORMAT = dict(zip(FORMATS, MEDIA_TYPES, strict=True))
# Bytes of a stored picture: as base64 in an event, within the store's bound of a payload.
MOST_STORED_BYTES = 600_000
# Tried in this order until the file is small enough. The first is nearly without visible loss.
_QUALITIES = (88, 75, 55)


class VisionSettings(StrictModel):
    """Pictures for a language model that sees."""

    camera: bool = Field(
        True,
        description="attach a picture of the caller's camera to each turn of a call, where the "
        "model sees and the caller has turned the camera on",
    )
    resent: int = Field(
        4,
        ge=1,
        le=20,
        description="newest pictures of a session in a request, at most; older ones become a remark. They "
        "are in addition to ``remembering.conversation.budget_tokens``",
    )
    minute_bytes: int = Field(
        6_000_000,
        ge=10_000,
        le=1_000_000_000,
        description="bytes of pictures that a session takes in a minute, as stored; a typed turn with more "
        "is refused, a spoken one goes without its picture",
    )


class VisionTuning(VisionSettings):
    """Settings, completed by values that no deployment sets."""

    # Providers scale down to about this themselves.
    longest_px: int = Field(
        1_568, ge=64, le=8_192, description="longer side to which a client's picture is scaled down"
    )
    # Faces, gestures and a page in the hand are recognised at this size; each turn of a call has a picture.
    camera_px: int = Field(
        1_024, ge=64, le=8_192, description="longer side to which a picture of the camera is scaled down"
    )
    # The largest photographs of telephones by default; decoding one takes 75 MB.
    most_pixels: int = Field(
        25_000_000,
        ge=10_000,
        le=100_000_000,
        description="pixel limit of a picture; a larger one is refused before it is decoded",
    )


def decode_base64(data: str) -> bytes:
    """Return the bytes of base64 text.

    Raises:
        MediaError: it is not base64, or empty.
    """
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise MediaError("the picture is not base64") from error
    if not raw:
        raise MediaError("the picture is empty")
    return raw


def picture_of_file(file: bytes, settings: VisionTuning, *, media_type: str | None = None) -> Picture:
    """Return the picture in a file, as it is stored. Its key is that of the file.

    Args:
        file: JPEG, PNG or WebP.
        settings: bounds.
        media_type: as its sender states it; None where it does not.

    Raises:
        MediaError: no picture, a truncated or too large one, or one of another type than stated.
    """
    image = decoded_file(
        file, most_pixels=settings.most_pixels, longest_px=settings.longest_px, media_type=media_type
    )
    return _stored(scaled(image, settings.longest_px), key=picture_key(file))


def picture_of_pixels(pixels: bytes, size: tuple[int, int], *, most_pixels: int, longest_px: int) -> Picture:
    """Return a picture of raw RGB, as it is stored.

    Raises:
        MediaError: the bytes are not a picture of this size, or too large.
    """
    return picture_of_image(decoded_pixels(pixels, size, most_pixels=most_pixels), longest_px=longest_px)


def picture_of_image(image: Image.Image, *, longest_px: int) -> Picture:
    """Return a decoded picture, as it is stored."""
    return _stored(scaled(image, longest_px), key=None)


def decoded_pixels(pixels: bytes, size: tuple[int, int], *, most_pixels: int) -> Image.Image:
    """Return raw RGB as an image.

    Raises:
        MediaError: the bytes are not a picture of this size, or too large.
    """
    width, height = size
    if width < 1 or height < 1 or len(pixels) != width * height * CHANNELS:
        raise MediaError(f"{len(pixels)} bytes are not an RGB picture of {width} by {height}")
    _check_pixels(width, height, most_pixels)
    return Image.frombytes("RGB", (width, height), pixels)


def decoded_file(
    file: bytes, *, most_pixels: int, longest_px: int, media_type: str | None = None
) -> Image.Image:
    """Return the picture in a file as RGB, upright.

    Args:
        file: JPEG, PNG or WebP; of an animation, the first picture.
        most_pixels: pixel limit.
        longest_px: a JPEG is decoded at a fraction of its size where that leaves as much.
        media_type: as its sender states it; None where it does not.

    Raises:
        MediaError: no picture, a truncated or too large one, or one of another type than stated.
    """
    try:
        with Image.open(io.BytesIO(file), formats=FORMATS) as opened:
            _check_pixels(*opened.size, most_pixels)
            found = _TYPE_OF_FORMAT[opened.format or ""]
            if media_type is not None and media_type != found:
                raise MediaError(f"the picture is stated to be {media_type}, and its content is {found}")
            opened.draft("RGB", (longest_px, longest_px))
            opened.load()
            return _on_white(ImageOps.exif_transpose(opened) or opened)
    except MediaError:
        raise
    except Image.DecompressionBombError as error:
        raise MediaError(f"the picture is too large: over {most_pixels:,} pixels") from error
    except Exception as error:  # Decoders raise arbitrary errors on untrusted bytes.
        raise MediaError(
            f"the file is not a whole picture ({type(error).__name__}); send a JPEG, PNG or WebP file"
        ) from error


def scaled(image: Image.Image, longest_px: int) -> Image.Image:
    """Return an image with no side longer than this."""
    longest = max(image.size)
    if longest <= longest_px:
        return image
    width, height = (max(1, round(side * longest_px / longest)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BILINEAR)


def _on_white(image: Image.Image) -> Image.Image:
    """Return an image as RGB; what is transparent in it becomes white, as on a page."""
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        layer = image.convert("RGBA")
        white = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(white, layer).convert("RGB")
    return image.convert("RGB")


def _stored(image: Image.Image, *, key: str | None) -> Picture:
    while True:
        for quality in _QUALITIES:
            target = io.BytesIO()
            image.save(target, "JPEG", quality=quality)
            if target.tell() <= MOST_STORED_BYTES:
                file = target.getvalue()
                data = base64.b64encode(file).decode("ascii")
                return Picture(key or picture_key(file), "image/jpeg", image.width, image.height, data)
        # Only noise is as long as this at the last quality.
        image = scaled(image, max(64, max(image.size) // 2))


def _check_pixels(width: int, height: int, most_pixels: int) -> None:
    if width * height > most_pixels:
        raise MediaError(
            f"a picture of {width} by {height} is too large: over {most_pixels:,} pixels; send a smaller one"
        )
