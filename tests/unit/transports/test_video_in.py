"""Input of pictures from a caller's camera."""

import asyncio

import pytest
from aiortc.mediastreams import MediaStreamError
from av import VideoFrame
from pipecat.frames.frames import UserImageRawFrame
from pipecat.transports.smallwebrtc.transport import CAM_VIDEO_SOURCE

from parley.transports.request import LONGEST_PX, PICTURES_PER_S
from parley.transports.webrtc.client import PacedWebRTCClient
from tests import virtual_time
from tests.fakes.browser_connection import connected_client


class Track:
    """Track of these pictures, one for each ``every_s``; None comes at once, as when switched off."""

    def __init__(self, frames: list[VideoFrame | None], *, every_s: float = 1 / 30) -> None:
        self._frames = frames
        self._every_s = every_s

    async def recv(self) -> VideoFrame | None:
        if not self._frames:
            raise MediaStreamError
        frame = self._frames.pop(0)
        if frame is not None:
            await asyncio.sleep(self._every_s)
        return frame

    def is_enabled(self) -> bool:
        return True


async def seen(track: Track, seconds: float) -> tuple[list[UserImageRawFrame], PacedWebRTCClient]:
    """Return the pictures that are passed on in that time, and the client."""
    client = await connected_client(camera=track)
    assert client.video_source_enabled(CAM_VIDEO_SOURCE)
    pictures: list[UserImageRawFrame] = []

    async def read() -> None:
        async for picture in client.read_video_frame(CAM_VIDEO_SOURCE):
            pictures.append(picture)

    reading = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    reading.cancel()
    await asyncio.wait({reading})
    return pictures, client


@pytest.fixture
def frame() -> VideoFrame:
    return VideoFrame(1_920, 1_080, "yuv420p")


def test_of_a_camera_some_pictures_go_on_and_none_is_too_large(frame: VideoFrame) -> None:
    pictures, _ = virtual_time.run(seen(Track([frame] * 150), 5.0))
    assert len(pictures) == pytest.approx(5 * PICTURES_PER_S, abs=1)
    width, height = pictures[0].size
    assert width == LONGEST_PX and height == 756 and pictures[0].format == "RGB"
    assert len(pictures[0].image) == width * height * 3


def test_a_camera_that_is_switched_off_holds_no_one_up(frame: VideoFrame) -> None:
    frames: list[VideoFrame | None] = [None] * 20
    pictures, _ = virtual_time.run(seen(Track([*frames, frame, frame]), 5.0))
    # Twenty empty results take two seconds, in which all other tasks go on.
    assert len(pictures) == 1


def test_a_track_that_ends_is_waited_for_no_more() -> None:
    pictures, client = virtual_time.run(seen(Track([]), 1.0))
    assert pictures == []
    assert not client.video_source_enabled(CAM_VIDEO_SOURCE)
