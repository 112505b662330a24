"""A camera and a screen that go on and off, on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from pipecat.frames.frames import InputImageRawFrame

from parley.core.call_events import CameraChanged
from parley.core.pictures import CAMERA, SCREEN, SHOWN
from parley.processors.perception.picture_sources import STALE_S, PictureSources
from parley.runtime.event_stream import CallEvents
from tests import virtual_time

Show = Callable[[str], None]


def changes(scenario: Callable[[Show], Coroutine[Any, Any, None]]) -> list[tuple[int, str, bool]]:
    """Return the seconds, source and state of each change."""
    found: list[tuple[int, str, bool]] = []

    async def whole() -> None:
        events = CallEvents()
        began_ms = events.now_ms()
        events.subscribe(
            CameraChanged,
            lambda event: found.append((round((event.at_ms - began_ms) / 1000), event.source, event.is_on)),
        )
        sources = PictureSources(events)

        def show(source: str) -> None:
            frame = InputImageRawFrame(image=bytes(3), size=(1, 1), format="RGB")
            frame.transport_source = source
            sources.see(frame)

        running = asyncio.create_task(sources.run())
        await asyncio.sleep(0)
        await scenario(show)
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    virtual_time.run(whole())
    return found


def test_each_source_goes_on_with_its_first_picture_and_off_without_any() -> None:
    async def scenario(show: Show) -> None:
        for second in range(10):
            show(CAMERA)
            if 3 <= second < 5:
                show(SCREEN)
            await asyncio.sleep(1)
        await asyncio.sleep(5)
        show(CAMERA)
        await asyncio.sleep(1)

    gone = int(STALE_S)
    assert changes(scenario) == [
        (0, CAMERA, True),
        (3, SCREEN, True),
        (4 + gone, SCREEN, False),
        (9 + gone, CAMERA, False),
        (15, CAMERA, True),
        # The call is over.
        (16, CAMERA, False),
    ]


def test_a_picture_that_a_program_shows_is_no_camera() -> None:
    async def scenario(show: Show) -> None:
        show(SHOWN)
        await asyncio.sleep(1)

    assert changes(scenario) == []
