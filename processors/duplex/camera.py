"""Camera pictures for an engine: decoded, bounded in size, off the loop.

Input: the bytes of a frame, raw RGB or a file (JPEG, PNG, WebP). Output: uint8, (height, width, 3). A client
may send anything. Bytes that are no picture, or have another size than stated, are refused. A picture larger
than ``most_pixels`` is refused before it is decoded, since a small file may hold a very large picture.
``decoded`` is pure except for the decoder, and blocks.

``Camera`` holds the newest frame, has it decoded in a thread, and passes it on: a camera gives many frames, a
unit takes few. It owns no task: ``run`` is its caller's.
"""

import asyncio
from collections.abc import Callable

import numpy as np
from loguru import logger
from pipecat.frames.frames import InputImageRawFrame
from pydantic import Field

from parley.core.errors import MediaError
from parley.core.strict_model import StrictModel
from parley.models.pictures import CHANNELS, decoded_file, decoded_pixels, scaled


class CameraSettings(StrictModel):
    """Bounds of a picture."""

    most_bytes: int = Field(8_000_000, ge=1_000, le=100_000_000, description="size limit of a picture file")
    most_pixels: int = Field(
        9_000_000,
        ge=10_000,
        le=100_000_000,
        description="pixel limit of a picture; a larger one is refused before it is decoded",
    )
    longest_px: int = Field(
        1_344,
        ge=64,
        le=8_192,
        description="longer side to which a picture is scaled down: three tiles of 448",
    )


def decoded(image: bytes, size: tuple[int, int], format: str | None, settings: CameraSettings) -> np.ndarray:
    """Decode one frame: uint8, (height, width, 3).

    Args:
        image: the bytes.
        size: (width, height), of raw pixels; a file contains its own.
        format: "RGB" for raw pixels; anything else, or None, is a file.
        settings: bounds.

    Raises:
        MediaError: no picture, or one that is too large.
    """
    if len(image) > max(settings.most_bytes, CHANNELS * settings.most_pixels):
        raise MediaError(f"a picture of {len(image)} bytes is too large")
    if format == "RGB":
        picture = decoded_pixels(image, size, most_pixels=settings.most_pixels)
    else:
        if len(image) > settings.most_bytes:
            raise MediaError(f"a picture file of {len(image)} bytes is too large")
        picture = decoded_file(image, most_pixels=settings.most_pixels, longest_px=settings.longest_px)
    return np.asarray(scaled(picture, settings.longest_px), dtype=np.uint8)


class Camera:
    """Camera of one call.

    Args:
        settings: bounds of a picture.

    Attributes:
        refused: number of frames that were no pictures.
    """

    def __init__(self, settings: CameraSettings) -> None:
        self._settings = settings
        self._newest: asyncio.Queue[InputImageRawFrame] = asyncio.Queue(maxsize=1)
        self.refused = 0

    def take(self, frame: InputImageRawFrame) -> None:
        """Store a frame; it replaces one that has not been decoded yet."""
        if self._newest.full():
            self._newest.get_nowait()
        self._newest.put_nowait(frame)

    async def run(self, show: Callable[[np.ndarray], float]) -> None:
        """Show pictures until cancelled.

        Args:
            show: takes a picture, and returns for how many ms it is enough. Not an attribute: its owner has
                the camera, and a cycle would keep both until the next full collection.
        """
        loop = asyncio.get_running_loop()
        while True:
            frame = await self._newest.get()
            began_s = loop.time()
            try:
                picture = await asyncio.to_thread(
                    decoded, frame.image, frame.size, frame.format, self._settings
                )
            except MediaError as error:
                self.refused += 1
                if self.refused == 1:
                    logger.warning(f"the camera: {error}")
                continue
            enough_ms = show(picture)
            # Twice as many as are taken: with one per unit, a unit that begins a moment sooner would have
            # none.
            await asyncio.sleep(enough_ms / 2_000 - (loop.time() - began_s))
