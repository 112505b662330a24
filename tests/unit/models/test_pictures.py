"""Pictures of clients: checked by their header, read completely, and stored without their metadata."""

import base64
import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from parley.core.errors import MediaError
from parley.core.pictures import Picture
from parley.models.pictures import MOST_STORED_BYTES, VisionTuning, picture_of_file, picture_of_pixels

SETTINGS = VisionTuning()


def file_of(image: Image.Image, format: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **more)
    return file.getvalue()


def stored(picture: Picture) -> Image.Image:
    image = Image.open(io.BytesIO(base64.b64decode(picture.data)))
    image.load()
    assert image.format == "JPEG" and image.size == (picture.width, picture.height)
    return image


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_file_is_scaled_down_and_encoded_again(format: str):
    file = file_of(Image.new("RGB", (4_000, 1_000), "red"), format)
    picture = picture_of_file(file, SETTINGS, media_type=f"image/{format.lower()}")
    assert stored(picture).size == (1_568, 392)
    assert picture.key == picture_of_file(file, SETTINGS).key
    assert stored(picture_of_file(file_of(Image.new("L", (30, 20)), format), SETTINGS)).size == (30, 20)


def test_a_photograph_is_turned_upright_and_loses_the_place_where_it_was_taken():
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    exif[0x8825] = {1: "N", 2: (52.0, 31.0, 12.0)}  # where it was taken
    photograph = file_of(Image.new("RGB", (300, 200)), "JPEG", exif=exif)
    assert Image.open(io.BytesIO(photograph)).getexif()
    image = stored(picture_of_file(photograph, SETTINGS))
    assert image.size == (200, 300) and not image.getexif()


def test_what_is_transparent_becomes_white():
    image = stored(picture_of_file(file_of(Image.new("RGBA", (8, 8), (0, 0, 0, 0))), SETTINGS))
    assert min(np.asarray(image).ravel()) > 250


def test_a_file_of_noise_is_bounded():
    noise = np.random.default_rng(1).integers(0, 256, (2_000, 2_000, 3), dtype=np.uint8)
    picture = picture_of_file(file_of(Image.fromarray(noise)), SETTINGS)
    assert len(base64.b64decode(picture.data)) <= MOST_STORED_BYTES
    stored(picture)


def header_of(width: int, height: int) -> bytes:
    """Return the head of a PNG that states this size and has nothing else."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


@pytest.mark.parametrize("size", [(10_000, 5_000), (60_000, 60_000)], ids=["50 megapixels", "bomb"])
def test_a_huge_picture_is_refused_by_its_header(size: tuple[int, int]):
    with pytest.raises(MediaError, match="too large"):
        picture_of_file(header_of(*size), SETTINGS)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_a_truncated_file_is_refused(format: str):
    noise = np.random.default_rng(1).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    file = file_of(Image.fromarray(noise), format)
    with pytest.raises(MediaError, match="not a whole picture"):
        picture_of_file(file[: len(file) // 2], SETTINGS)


@pytest.mark.parametrize("file", [b"", b"GIF89a", b"<svg/>", b"\xff\xd8\xff\xe0", bytes(100)])
def test_what_is_no_picture_is_refused(file: bytes):
    with pytest.raises(MediaError, match="JPEG, PNG or WebP"):
        picture_of_file(file, SETTINGS)


def test_a_file_of_another_type_than_stated_is_refused():
    with pytest.raises(MediaError, match="stated to be image/jpeg, and its content is image/png"):
        picture_of_file(file_of(Image.new("RGB", (8, 8))), SETTINGS, media_type="image/jpeg")


def test_raw_pixels_of_a_camera_are_scaled_to_their_own_size():
    pixels = bytes(1_344 * 756 * 3)
    scaled = picture_of_pixels(pixels, (1_344, 756), most_pixels=2_000_000, longest_px=1_024)
    assert stored(scaled).size == (1_024, 576)
    with pytest.raises(MediaError, match="not an RGB picture"):
        picture_of_pixels(pixels, (1_344, 755), most_pixels=2_000_000, longest_px=1_024)
