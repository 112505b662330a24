"""Pictures of the caller in a call by turns: one of the camera, one of a shared screen, and those that the
caller shows.

    transport.input -> CallerCamera (pictures stop here) -> ...

Input: frames, as the transport has decoded them off the loop. Output: nothing; the commit gate takes the
pictures with ``look`` when a turn is over. Where its words point ("what is this?"), it takes the frame
nearest to the last of them, and otherwise the newest: what was held up is often lowered while the turn waits
for its end. Of each source some seconds of frames are held (``held_frames``). A program may also show
pictures with a turn (``core.pictures.SHOWN``): they wait for the next one, at most ``MOST_SHOWN``, the
newest. Pictures are scaled and encoded only when a turn takes them, in a thread, with a deadline: one that is
late or no picture costs the turn this picture and nothing else. Files of a client
(``pipelines.stages.shown_pictures``) were read and counted when they came.

No frame is taken of a source that has sent none for ``STALE_S``. The camera is off, or it has frozen, and the
caller does not show any more what is on it. A screen that is still sends pictures like any other.
"""

import asyncio
from collections import deque
from dataclasses import replace
from typing import Protocol

from loguru import logger
from pipecat.frames.frames import Frame, InputImageRawFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.errors import MediaError
from parley.core.frame_facts import CAPTURED_S
from parley.core.pictures import CAMERA, SCREEN, SHOWN, Picture
from parley.core.tuning import tuned
from parley.models.pictures import (
    VisionSettings,
    VisionTuning,
    decoded_file,
    picture_of_image,
    picture_of_pixels,
)
from parley.processors.perception.held_frames import HeldFrames
from parley.processors.perception.picture_sources import STALE_S, source_of

# A model reads no more at a time with attention, and decoded pictures are large.
MOST_SHOWN = 4
# Scaling and encoding take about 20 ms.
ENCODE_S = 1.0


class TurnPictures(Protocol):
    """Pictures for the next turn of a call: ``CallerCamera``, or ``NoCamera`` where no model sees them."""

    @property
    def is_on(self) -> bool:
        """True when a turn that ends now has a picture."""
        ...

    def take_files(self) -> list[Picture]:
        """Return the files for a turn, once each."""
        ...

    async def look(self, at_s: float | None = None) -> list[Picture]:
        """Return the pictures for a turn.

        Args:
            at_s: moment at which its words point, in the time of the loop; None where they do not.
        """
        ...


class NoCamera:
    """Pictures of a call whose model sees none."""

    is_on = False

    def take_files(self) -> list[Picture]:
        """Return no files."""
        return []

    async def look(self, at_s: float | None = None) -> list[Picture]:
        """Return no pictures."""
        return []


class CallerCamera(FrameProcessor):
    """Holder of the pictures for the next turn of a call.

    Args:
        settings: bounds of a picture.

    Attributes:
        refused: number of pictures that were taken for a turn and could not be used.
    """

    def __init__(self, settings: VisionSettings) -> None:
        # It runs in the task that pushes the caller's audio.
        super().__init__(enable_direct_mode=True)
        self._settings = tuned(VisionTuning, settings)
        # By source.
        self._held: dict[str, HeldFrames] = {}
        self._shown: deque[InputImageRawFrame] = deque(maxlen=MOST_SHOWN)
        self._files: list[Picture] = []
        self.refused = 0

    @property
    def is_on(self) -> bool:
        """True when a turn that ends now has a picture."""
        now_s = asyncio.get_running_loop().time()
        return bool(self._shown or self._files) or any(held.is_fresh(now_s) for held in self._held.values())

    @property
    def holds_most(self) -> bool:
        """True when no more files can wait for the next turn."""
        return len(self._files) >= MOST_SHOWN

    def show(self, picture: Picture) -> None:
        """Hold a file of the caller for the next turn; call it while there is room (``holds_most``)."""
        self._files.append(picture)

    def take_files(self) -> list[Picture]:
        """Return the files for a turn, once each."""
        files, self._files = self._files, []
        return files

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, InputImageRawFrame):
            await self.push_frame(frame, direction)
        elif (source := source_of(frame)) == SHOWN:
            self._shown.append(frame)
        elif self._settings.camera:
            captured_s = CAPTURED_S.of(frame)
            if captured_s is None:
                captured_s = asyncio.get_running_loop().time()
            self._held.setdefault(source, HeldFrames()).hold(frame, captured_s)

    async def look(self, at_s: float | None = None) -> list[Picture]:
        """Return the pictures for a turn: frames that were shown, once each, the screen and the camera.

        Args:
            at_s: moment at which its words point, in the time of the loop; None where they do not.
        """
        shown = list(self._shown)
        self._shown.clear()
        found = [await self._encoded(frame, self._settings.longest_px) for frame in shown]
        if (frame := self._of(SCREEN, at_s)) is not None:
            # Its text is to be read: a screen is not scaled down to the size of a camera.
            screen = await self._encoded(frame, self._settings.longest_px)
            found.append(None if screen is None else replace(screen, source=SCREEN))
        if (frame := self._of(CAMERA, at_s)) is not None:
            found.append(await self._encoded(frame, self._settings.camera_px))
        return [picture for picture in found if picture is not None]

    def _of(self, source: str, at_s: float | None) -> InputImageRawFrame | None:
        """Return the frame of a source nearest a moment; None when it is off, has frozen, or sent none."""
        held = self._held.get(source)
        if held is None or held.is_fresh(asyncio.get_running_loop().time()):
            return None if held is None else held.nearest(at_s)
        # The frames are of no use any more.
        del self._held[source]
        logger.info(f"{self}: the {source} has sent nothing for {STALE_S:g} s; the turn has no picture of it")
        return None

    async def _encoded(self, frame: InputImageRawFrame, longest_px: int) -> Picture | None:
        """Return a frame as it is stored; None when that fails."""
        try:
            async with asyncio.timeout(ENCODE_S):
                return await asyncio.to_thread(_picture_of, frame, self._settings, longest_px)
        except (MediaError, TimeoutError) as error:
            self.refused += 1
            if self.refused == 1:
                logger.warning(f"{self}: a turn has no picture: {error or 'encoding it took too long'}")
            return None

    def forget(self) -> None:
        """Drop all pictures and frames so far."""
        self._held.clear()
        self._shown.clear()
        self._files.clear()

    async def cleanup(self) -> None:
        """Forget the pictures."""
        await super().cleanup()
        self.forget()


def _picture_of(frame: InputImageRawFrame, settings: VisionTuning, longest_px: int) -> Picture:
    if frame.format == "RGB":
        return picture_of_pixels(
            frame.image, frame.size, most_pixels=settings.most_pixels, longest_px=longest_px
        )
    image = decoded_file(frame.image, most_pixels=settings.most_pixels, longest_px=longest_px)
    return picture_of_image(image, longest_px=longest_px)
