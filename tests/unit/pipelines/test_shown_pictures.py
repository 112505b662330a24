"""Pictures that the client of a call sends: checked, counted and bounded before they are held."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from pipecat.frames.frames import InputImageRawFrame
from pipecat.processors.frame_processor import FrameDirection

from parley.core.call_events import PrivatePauseEnded
from parley.core.errors import CapacityError, MediaError
from parley.core.pictures import PictureFile
from parley.models.pictures import VisionSettings
from parley.pipelines.engines.picture_reader import PictureReader
from parley.pipelines.stages.shown_pictures import BURST_FILES, ShownPictures
from parley.processors.perception.caller_camera import MOST_SHOWN, CallerCamera
from parley.runtime.event_stream import CallEvents
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.store import SessionStore, StoreTuning

SETTINGS = VisionSettings(camera=False)


class Bench:
    """Pictures of one call."""

    def __init__(self, shown: ShownPictures, camera: CallerCamera, events: CallEvents) -> None:
        self.shown, self.camera, self.events = shown, camera, events


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    # Room for eight small pictures in a minute, and no more.
    tuning = ConversationTuning(picture_bytes_per_minute=10_000)
    conversations = Conversations(store, tuning, compactor=Compactor())
    reader, camera = PictureReader(SETTINGS), CallerCamera(SETTINGS)
    try:
        async with conversations.open() as conversation:
            events = CallEvents()
            yield Bench(ShownPictures(reader, conversation, camera, events), camera, events)
    finally:
        reader.close()
        await conversations.close()
        await store.close()


def png(*, red: int = 0, size: tuple[int, int] = (64, 48)) -> PictureFile:
    file = io.BytesIO()
    Image.new("RGB", size, (red, 0, 0)).save(file, "PNG")
    return PictureFile(base64.b64encode(file.getvalue()).decode(), "image/png")


async def test_four_pictures_wait_and_a_fifth_is_refused(bench: Bench):
    for number in range(MOST_SHOWN):
        await bench.shown.take(png(red=50 * number))
    with pytest.raises(CapacityError, match="4 pictures wait already"):
        await bench.shown.take(png(red=250))
    taken = bench.camera.take_files()
    assert [(each.media_type, each.width, each.height) for each in taken] == [("image/jpeg", 64, 48)] * 4
    await bench.shown.take(png(red=250))
    assert len(bench.camera.take_files()) == 1


async def test_what_waits_at_the_end_of_a_private_pause_is_dropped(bench: Bench):
    async def end_pause() -> None:
        bench.events.publish(PrivatePauseEnded(bench.events.now_ms(), "time"))

    await bench.shown.take(png())
    frame = InputImageRawFrame(image=bytes(64 * 48 * 3), size=(64, 48), format="RGB")
    await bench.camera.process_frame(frame, FrameDirection.DOWNSTREAM)
    await end_pause()
    assert not bench.camera.is_on and await bench.camera.look() == []
    assert bench.camera.take_files() == []
    # One that is still being read is of the pause, too.
    await asyncio.gather(bench.shown.take(png(red=50)), end_pause())
    assert bench.camera.take_files() == []
    await bench.shown.take(png(red=100))
    assert len(bench.camera.take_files()) == 1


async def test_what_is_no_picture_as_stated_is_refused(bench: Bench):
    for file, reason in (
        (replace(png(), media_type="image/webp"), "stated to be image/webp"),
        (PictureFile("bm8gcGljdHVyZQ==", "image/png"), "not a whole picture"),
        (PictureFile("no base64", "image/png"), "not base64"),
    ):
        with pytest.raises(MediaError, match=reason):
            await bench.shown.take(file)
    assert not bench.camera.is_on


async def test_many_pictures_in_a_short_time_are_refused_before_they_are_read(bench: Bench):
    with pytest.raises(CapacityError, match=r"try again in [12] s"):
        for _ in range(BURST_FILES + 1):
            await bench.shown.take(png())
            bench.camera.take_files()


async def test_pictures_are_counted_into_the_session(bench: Bench):
    noise = Image.frombytes("RGB", (200, 200), bytes(range(256)) * 468 + bytes(192))
    file = io.BytesIO()
    noise.save(file, "PNG")
    large = PictureFile(base64.b64encode(file.getvalue()).decode(), "image/png")
    with pytest.raises(CapacityError, match="put into this session"):
        for _ in range(BURST_FILES):
            await bench.shown.take(large)
            bench.camera.take_files()
    assert not bench.camera.is_on
