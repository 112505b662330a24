"""Pictures from untrusted clients."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from parley.core.errors import MediaError
from parley.processors.duplex.camera import CameraSettings, decoded

SETTINGS = CameraSettings()


def file(width: int, height: int, format: str = "JPEG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height), (200, 30, 60)).save(out, format)
    return out.getvalue()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_file_is_decoded_and_scaled_down(format: str) -> None:
    found = decoded(file(640, 480, format), (0, 0), None, SETTINGS)
    assert found.shape == (480, 640, 3) and found.dtype == np.uint8
    np.testing.assert_allclose(found[10, 10], (200, 30, 60), atol=4)
    assert decoded(file(2_688, 1_000, format), (0, 0), format, SETTINGS).shape == (500, 1_344, 3)


def test_raw_pixels_are_taken_as_they_are() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    np.testing.assert_array_equal(decoded(pixels.tobytes(), (6, 4), "RGB", SETTINGS), pixels)


@pytest.mark.parametrize(
    "image", [b"", b"GIF89a", b"\xff\xd8\xff\xe0 not a jpeg", file(64, 64)[:200], bytes(1_000)]
)
def test_what_is_no_picture_is_refused(image: bytes) -> None:
    with pytest.raises(MediaError):
        decoded(image, (0, 0), None, SETTINGS)


@pytest.mark.parametrize("size", [(6, 5), (0, 0), (-6, -4), (10**9, 10**9)])
def test_raw_pixels_of_another_size_are_refused(size: tuple[int, int]) -> None:
    with pytest.raises(MediaError):
        decoded(bytes(72), size, "RGB", SETTINGS)


def bomb(width: int, height: int) -> bytes:
    """Return a PNG of a few kilobytes whose header declares a huge size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


def declared(width: int, height: int) -> bytes:
    """Return a JPEG of 64 by 64 pixels whose header declares another size."""
    image = bytearray(file(64, 64))
    size = image.index(b"\xff\xc0") + 5
    image[size : size + 4] = struct.pack(">HH", height, width)
    return bytes(image)


@pytest.mark.parametrize(
    "image", [declared(8_000, 6_250), bomb(60_000, 60_000)], ids=["50 megapixels", "bomb"]
)
def test_a_huge_picture_is_refused_before_it_is_decoded(image: bytes) -> None:
    # Decoded, it would be refused for the pixels that it lacks.
    with pytest.raises(MediaError, match="too large"):
        decoded(image, (0, 0), None, SETTINGS)


def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(MediaError, match="too large"):
        decoded(bytes(8_000_001), (0, 0), None, SETTINGS)
