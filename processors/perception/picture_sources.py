"""Notice when a camera or a shared screen of the caller goes on and off: each is a step of the session.

Input: the frames of a call, by a direct call from the stage that receives them
(``processors.perception.camera_tap``). Output: ``CameraChanged``. A source that sends nothing for ``STALE_S``
is off: transports say nothing when a camera is turned off. ``run`` is a task of the call.
"""

import asyncio

from pipecat.frames.frames import InputImageRawFrame

from parley.core.call_events import CameraChanged
from parley.core.pictures import CAMERA, SCREEN, SHOWN
from parley.runtime.event_stream import CallEvents

# Four times the interval of frames: a camera that is covered for a moment by loss on the network still shows.
STALE_S = 2.0
# A timer may be early by the clock's resolution.
LEAST_WAIT_S = 0.01


def source_of(frame: InputImageRawFrame) -> str:
    """Return the source of a frame: a transport that names none has a camera."""
    return frame.transport_source if frame.transport_source in (SCREEN, SHOWN) else CAMERA


class PictureSources:
    """Cameras and screens of one call.

    Args:
        events: of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._events = events
        self._shows = asyncio.Event()
        # When the last frame of each source came, in the time of the loop.
        self._came_s: dict[str, float] = {}
        self._on: set[str] = set()

    def see(self, frame: InputImageRawFrame) -> None:
        """Note a frame."""
        source = source_of(frame)
        if source == SHOWN:
            return
        self._came_s[source] = _now_s()
        if source not in self._on:
            self._shows.set()

    async def run(self) -> None:
        """Report when a source goes on and off, until cancelled; then all count as off."""
        try:
            while True:
                await self._wait()
                self._note()
        finally:
            for source in sorted(self._on):
                self._turn_off(source)

    async def _wait(self) -> None:
        """Return when a source goes on, or when one may have gone off."""
        due_s = min((self._came_s[source] + STALE_S for source in self._on), default=None)
        try:
            async with asyncio.timeout(None if due_s is None else max(LEAST_WAIT_S, due_s - _now_s())):
                await self._shows.wait()
        except TimeoutError:
            return

    def _note(self) -> None:
        self._shows.clear()
        for source, came_s in sorted(self._came_s.items()):
            is_fresh = _now_s() - came_s <= STALE_S
            if is_fresh and source not in self._on:
                self._on.add(source)
                self._publish(source, is_on=True)
            elif not is_fresh and source in self._on:
                self._turn_off(source)

    def _turn_off(self, source: str) -> None:
        self._on.discard(source)
        self._publish(source, is_on=False)

    def _publish(self, source: str, *, is_on: bool) -> None:
        self._events.publish(CameraChanged(self._events.now_ms(), is_on, source))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
