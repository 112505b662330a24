"""Pictures of a caller's camera on their way in."""

import asyncio
from typing import Any

import pytest
from aiortc.mediastreams import MediaStreamError
from av import VideoFrame
from pipecat.frames.frames import UserImageRawFrame
from pipecat.transports.smallwebrtc.transport import CAM_VIDEO_SOURCE

from tests import virtual_time
from transports.webrtc.transport import LONGEST_PX, PICTURES_PER_S, PacedWebRTCClient


class Connection:
    """As much of one as a client needs."""

    pc_id = "caller"

    def event_handler(self, _name: str) -> Any:
        return lambda handler: handler


class Track:
    """Gives these, one for each ``every_s``; None at once, as one that is switched off."""

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


def client_of(track: Track) -> PacedWebRTCClient:
    client = PacedWebRTCClient(Connection(), None, on_packet=None, jitter_buffer=False)  # type: ignore[arg-type]
    client._video_input_track = track  # type: ignore[assignment]
    return client


async def seen(client: PacedWebRTCClient, seconds: float) -> list[UserImageRawFrame]:
    pictures: list[UserImageRawFrame] = []

    async def read() -> None:
        async for picture in client.read_video_frame(CAM_VIDEO_SOURCE):
            pictures.append(picture)

    reading = asyncio.create_task(read())
    await asyncio.sleep(seconds)
    reading.cancel()
    await asyncio.wait({reading})
    return pictures


@pytest.fixture
def frame() -> VideoFrame:
    return VideoFrame(1_920, 1_080, "yuv420p")


def test_of_a_camera_some_pictures_go_on_and_none_is_too_large(frame: VideoFrame) -> None:
    pictures = virtual_time.run(seen(client_of(Track([frame] * 150)), 5.0))
    assert len(pictures) == pytest.approx(5 * PICTURES_PER_S, abs=1)
    width, height = pictures[0].size
    assert width == LONGEST_PX and height == 756 and pictures[0].format == "RGB"
    assert len(pictures[0].image) == width * height * 3


def test_a_camera_that_is_switched_off_holds_nobody_up(frame: VideoFrame) -> None:
    frames: list[VideoFrame | None] = [None] * 20
    pictures = virtual_time.run(seen(client_of(Track([*frames, frame, frame])), 5.0))
    # Twenty times nothing take two seconds, in which everybody else goes on.
    assert len(pictures) == 1


def test_a_track_that_ends_is_waited_for_no_more() -> None:
    client = client_of(Track([]))
    assert virtual_time.run(seen(client, 1.0)) == []
    assert client._video_input_track is None
