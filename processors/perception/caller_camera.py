"""Pictures of the caller in a call by turns: the newest of the camera, and those that the caller shows.

    transport.input -> CallerCamera (pictures stop here) -> ...

Input: frames, as the transport has decoded them off the loop. Output: nothing; the commit gate takes the
pictures with ``look`` when a turn is over. Of the camera one frame is kept, and a newer one replaces it. A
program may also show pictures with a turn (``core.pictures.SHOWN``): they wait for the next one, at most
``MOST_SHOWN``, the newest. Pictures are scaled and encoded only when a turn takes them, in a thread, with a
deadline: one that is late or no picture costs the turn this picture and nothing else.

``watch`` reports when the camera goes on and off: each is a step of the session to another tier.

A frame of the camera that is older than ``STALE_S`` is not taken. The camera is off, or it has frozen, and
the caller does not show any more what is on it.
"""

import asyncio
from collections import deque

from loguru import logger
from pipecat.frames.frames import Frame, InputImageRawFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.call_events import CameraChanged
from parley.core.errors import MediaError
from parley.core.pictures import SHOWN, Picture
from parley.models.pictures import VisionSettings, decoded_file, picture_of_image, picture_of_pixels
from parley.runtime.event_stream import CallEvents

# Four times the interval of frames: a camera that is covered for a moment by loss on the network still shows.
STALE_S = 2.0
# A model reads no more at a time with attention, and decoded pictures are large.
MOST_SHOWN = 4
# Scaling and encoding take about 20 ms.
ENCODE_S = 1.0


class CallerCamera(FrameProcessor):
    """Holder of the pictures for the next turn of a call.

    Args:
        settings: bounds of a picture.
        events: of the call.

    Attributes:
        refused: number of pictures that were taken for a turn and could not be used.
    """

    def __init__(self, settings: VisionSettings, events: CallEvents) -> None:
        # It runs in the task that pushes the caller's audio.
        super().__init__(enable_direct_mode=True)
        self._settings, self._events = settings, events
        self._shows = asyncio.Event()
        self._newest: InputImageRawFrame | None = None
        self._shown: deque[InputImageRawFrame] = deque(maxlen=MOST_SHOWN)
        self._came_s = 0.0
        self._is_stale = False
        self.refused = 0

    @property
    def is_on(self) -> bool:
        """True when a turn that ends now has a picture."""
        if self._shown:
            return True
        return self._is_camera_on()

    def _is_camera_on(self) -> bool:
        if self._newest is None:
            return False
        return asyncio.get_running_loop().time() - self._came_s <= STALE_S

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, InputImageRawFrame):
            await self.push_frame(frame, direction)
        elif frame.transport_source == SHOWN:
            self._shown.append(frame)
        elif self._settings.camera:
            self._newest, self._came_s = frame, asyncio.get_running_loop().time()
            self._is_stale = False
            self._shows.set()

    async def watch(self) -> None:
        """Report when the camera goes on and off, until cancelled; then it counts as off."""
        while True:
            self._shows.clear()
            await self._shows.wait()
            self._publish(is_on=True)
            try:
                while self._is_camera_on():
                    left_s = self._came_s + STALE_S - asyncio.get_running_loop().time()
                    # A timer may be early by the clock's resolution.
                    await asyncio.sleep(max(0.01, left_s))
            finally:
                self._publish(is_on=False)

    def _publish(self, *, is_on: bool) -> None:
        self._events.publish(CameraChanged(self._events.now_ms(), is_on))

    async def look(self) -> list[Picture]:
        """Return the pictures for a turn, those that were shown before the camera's; each is shown once."""
        shown = list(self._shown)
        self._shown.clear()
        found = [await self._encoded(frame, self._settings.longest_px) for frame in shown]
        if (frame := self._of_camera()) is not None:
            found.append(await self._encoded(frame, self._settings.camera_px))
        return [picture for picture in found if picture is not None]

    def _of_camera(self) -> InputImageRawFrame | None:
        """Return the newest frame; None when the camera is off, has frozen, or sent no picture."""
        if self._newest is None or self._is_camera_on():
            return self._newest
        # The frame is of no use any more.
        self._newest = None
        if not self._is_stale:
            self._is_stale = True
            logger.info(f"{self}: the camera has sent nothing for {STALE_S:g} s; the turn has no picture")
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

    async def cleanup(self) -> None:
        """Forget the picture."""
        await super().cleanup()
        self._newest = None
        self._shown.clear()


def _picture_of(frame: InputImageRawFrame, settings: VisionSettings, longest_px: int) -> Picture:
    if frame.format == "RGB":
        return picture_of_pixels(
            frame.image, frame.size, most_pixels=settings.most_pixels, longest_px=longest_px
        )
    image = decoded_file(frame.image, most_pixels=settings.most_pixels, longest_px=longest_px)
    return picture_of_image(image, longest_px=longest_px)
