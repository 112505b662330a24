"""Frames of a caller's camera, and what becomes of frozen cameras, broken frames and strange specialists."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pipecat.frames.frames import InputImageRawFrame

from parley.core.call_events import AnnotationReported, SpecialistLeft, VoiceEnded, VoiceStarted
from parley.core.errors import ConfigError
from parley.core.frame_facts import CAPTURED_S
from parley.core.timeline import Source, VisionPayload
from parley.models.specialists.prosody import ProsodySettings
from parley.pipelines.engines.specialist_processes import SpecialistProcesses
from parley.processors.fusion.camera_specialist import (
    FROZEN_MS,
    GONE_MS,
    MOST_PIXELS,
    QUIET_MS,
    VOICE_MS,
    WATCHED_PX,
    CameraSpecialist,
)
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from tests.fakes.specialists import StrangeSettings

TARGET = "tests.fakes.specialists:StrangeWatcher"
RED, GREEN = (200, 20, 20), (20, 200, 20)
NOISE = np.random.default_rng(1)


def frame(
    colour: tuple[int, int, int],
    *,
    size: tuple[int, int] = (64, 36),
    is_live: bool = True,
    age_s: float = 0.0,
) -> InputImageRawFrame:
    """Return a frame of a camera; a live one has noise."""
    pixels = np.full((size[1], size[0], 3), colour, np.uint8)
    pixels += NOISE.integers(0, 5, pixels.shape, np.uint8)
    made = InputImageRawFrame(image=pixels.tobytes(), size=size, format="RGB")
    CAPTURED_S.put(made, asyncio.get_running_loop().time() - age_s)
    return made


class Call:
    """Camera of one call, and what was reported about it."""

    def __init__(self, processes: SpecialistProcesses) -> None:
        self.events, self.clock = CallEvents(), LoopClock()
        self.reported: list[AnnotationReported] = []
        self.left: list[Source] = []
        self.events.subscribe(AnnotationReported, self.reported.append)
        self.events.subscribe(SpecialistLeft, lambda event: self.left.append(event.stream))
        assert processes.camera is not None
        self.specialist = CameraSpecialist(processes.camera, clock=self.clock, events=self.events)

    @property
    def seen(self) -> list[VisionPayload]:
        found = (each.annotation.payload for each in self.reported if each.annotation is not None)
        return [each for each in found if isinstance(each, VisionPayload)]

    @property
    def gestures(self) -> list[str | None]:
        return [each.gesture for each in self.seen]

    @property
    def signs(self) -> list[int]:
        return [each.passed_us for each in self.reported if each.passed_us is not None]

    async def film(
        self,
        make: Callable[[], InputImageRawFrame],
        until: Callable[[], bool],
        *,
        every_s: float = 0.02,
        within_s: float = 8.0,
    ) -> None:
        """Show frames until a condition holds."""
        async with asyncio.timeout(within_s):
            while not until():
                self.specialist.see(make())
                await asyncio.sleep(every_s)


@asynccontextmanager
async def call_with(**settings: object) -> AsyncIterator[Call]:
    processes = SpecialistProcesses([(TARGET, StrangeSettings(**settings))])  # type: ignore[arg-type]
    processes.start()
    call = Call(processes)
    await until(lambda: processes.camera is not None and processes.camera.is_ready)
    running = asyncio.create_task(call.specialist.run())
    try:
        yield call
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await processes.close()


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not met():
            await asyncio.sleep(0.01)


async def test_what_is_seen_is_reported_at_the_time_of_its_frame():
    async with call_with() as call:
        await call.film(lambda: frame(GREEN), lambda: bool(call.reported))
        before_us = call.clock.now_us()
        await call.film(lambda: frame(RED, age_s=0.15), lambda: "pointing up" in call.gestures)
        report = next(
            each for each in call.reported if each.annotation and each.annotation.payload in call.seen[-1:]
        )
        annotation = report.annotation
        assert annotation is not None and annotation.source is Source.VISION and report.identity
        # Captured 0.15 s before it arrived here.
        assert annotation.event_us <= annotation.arrival_us - 150_000
        assert annotation.event_us == call.seen[-1].start_us >= before_us - 150_000
        assert call.signs[-1] <= annotation.event_us
        await until(lambda: call.signs[-1] >= annotation.event_us)


async def test_frames_are_frequent_while_the_caller_speaks():
    async with call_with() as call:
        await call.film(lambda: frame(GREEN), lambda: bool(call.reported))

        async def frames_in(seconds: float) -> int:
            before = call.specialist.judged
            async with asyncio.timeout(seconds + 5):
                end_s = asyncio.get_running_loop().time() + seconds
                await call.film(lambda: frame(GREEN), lambda: asyncio.get_running_loop().time() >= end_s)
            return call.specialist.judged - before

        quiet = await frames_in(2.0)
        call.events.publish(VoiceStarted(0, 128))
        spoken = await frames_in(2.0)
        call.events.publish(VoiceEnded(0, 128))
        assert quiet <= 2_000 / QUIET_MS + 1
        assert 2_000 / VOICE_MS * 0.7 <= spoken <= 2_000 / VOICE_MS + 1


async def test_a_camera_that_sends_nothing_ends_what_was_seen_and_holds_nothing_up():
    async with call_with() as call:
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)
        last_us = call.signs[-1]
        async with asyncio.timeout(GONE_MS / 1000 + 5):
            await until(lambda: call.left == [Source.VISION])
        end = call.seen[-1]
        assert end.gesture == "pointing up" and end.end_us <= last_us + 1_000_000
        # It is back with the next frame.
        await call.film(lambda: frame(RED), lambda: call.gestures[-2:] == ["pointing up"] * 2)
        assert call.left == [Source.VISION]


async def test_a_camera_that_freezes_ends_what_was_seen_and_is_not_judged():
    async with call_with() as call:
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)
        frozen = frame(RED)

        def same() -> InputImageRawFrame:
            again = InputImageRawFrame(image=frozen.image, size=frozen.size, format="RGB")
            CAPTURED_S.put(again, asyncio.get_running_loop().time())
            return again

        await call.film(same, lambda: call.left == [Source.VISION], within_s=FROZEN_MS / 1000 + 10)
        judged = call.specialist.judged
        assert (
            call.seen[-1].gesture == "pointing up" and call.seen[-1].end_us < call.clock.now_us() - 1_000_000
        )
        shown = 0

        def enough() -> bool:
            nonlocal shown
            shown += 1
            return shown > 60

        await call.film(same, enough)
        assert call.specialist.judged == judged and call.left == [Source.VISION]
        await call.film(lambda: frame(GREEN), lambda: call.specialist.judged > judged)
        await until(lambda: call.gestures[-1] is None)


async def test_a_new_key_frame_of_a_still_picture_does_not_make_it_live():
    still = np.full((36, 64, 3), RED, np.uint8)

    def shown(levels: int) -> InputImageRawFrame:
        made = InputImageRawFrame(image=(still + np.uint8(levels)).tobytes(), size=(64, 36), format="RGB")
        CAPTURED_S.put(made, asyncio.get_running_loop().time())
        return made

    async with call_with() as call:
        call.events.publish(VoiceStarted(0, 128))
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)
        began_s = asyncio.get_running_loop().time()
        await call.film(lambda: shown(0), lambda: asyncio.get_running_loop().time() >= began_s + 1.3)
        judged = call.specialist.judged
        # Before it counts as frozen, an encoder begins anew: five levels more in each pixel.
        assert not call.left
        await call.film(lambda: shown(5), lambda: call.left == [Source.VISION], within_s=2.0)
        assert call.specialist.judged == judged
        await call.film(lambda: shown(20), lambda: call.specialist.judged > judged)


async def test_a_frame_of_fifty_megapixels_is_left_out_and_the_next_one_is_judged():
    large = InputImageRawFrame(image=bytes(8_000 * 6_250 * 3), size=(8_000, 6_250), format="RGB")
    assert large.size[0] * large.size[1] > MOST_PIXELS
    async with call_with() as call:
        await call.film(lambda: large, lambda: call.specialist.refused > 0)
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)
        assert call.left == []


@pytest.mark.parametrize("fault", ["truncated pixels", "truncated file", "huge file", "no picture"])
async def test_a_broken_frame_is_left_out_and_the_next_one_is_judged(fault: str):
    file = io.BytesIO()
    Image.effect_noise((320, 240), 80).convert("RGB").save(file, "JPEG")
    huge = io.BytesIO()
    Image.new("1", (8_000, 6_250)).save(huge, "PNG")
    image, kind = {
        "truncated pixels": (bytes(100), "RGB"),
        "truncated file": (file.getvalue()[:2_000], "JPEG"),
        "huge file": (huge.getvalue(), "PNG"),
        "no picture": (b"<svg/>", "JPEG"),
    }[fault]
    broken = InputImageRawFrame(image=image, size=(320, 240), format=kind)
    async with call_with() as call:
        await call.film(lambda: broken, lambda: call.specialist.refused > 0)
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)


async def test_a_file_of_a_socket_is_decoded_and_a_large_frame_scaled():
    file = io.BytesIO()
    Image.new("RGB", (4 * WATCHED_PX, 3 * WATCHED_PX), RED).save(file, "JPEG")
    sent = InputImageRawFrame(image=file.getvalue(), size=(0, 0), format="JPEG")
    async with call_with() as call:
        await call.film(lambda: sent, lambda: "pointing up" in call.gestures)
        await call.film(lambda: frame(GREEN, size=(4 * WATCHED_PX, 100)), lambda: call.gestures[-1] is None)


async def test_a_slow_specialist_gets_the_newest_frame_and_no_queue():
    async with call_with(fault="slow") as call:
        call.events.publish(VoiceStarted(0, 128))
        await call.film(lambda: frame(GREEN), lambda: call.specialist.judged >= 1)
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures, within_s=2.0)
        late_us = [
            each.annotation.arrival_us - each.annotation.event_us for each in call.reported if each.annotation
        ]
        # One frame at work and one that waits: no report is older than twice the work.
        assert max(late_us) < 1_000_000 and call.left == []


async def test_a_specialist_that_hangs_is_lost_and_comes_back(tmp_path: Path):
    async with call_with(fault="hang", once=tmp_path / "hung") as call:
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures, within_s=30.0)
        # It never reported before it hung, so it did not leave either.
        assert call.left == [] and call.specialist.judged >= 1


async def test_a_specialist_that_is_lost_ends_what_was_seen():
    async with call_with() as call:
        await call.film(lambda: frame(RED), lambda: "pointing up" in call.gestures)
        assert call.specialist is not None
        begun = call.seen[-1]
        call.specialist._on_lost()
        assert call.left == [Source.VISION]
        assert call.seen[-1].gesture == begun.gesture and call.seen[-1].end_us < begun.end_us


async def test_a_specialist_that_fails_costs_its_findings_and_no_task():
    async with call_with(fault="fail") as call:
        shown = 0

        def enough() -> bool:
            nonlocal shown
            shown += 1
            return shown > 50

        await call.film(lambda: frame(RED), enough)
        assert call.reported == []


async def test_one_specialist_of_the_camera_is_enough():
    row = (TARGET, StrangeSettings())
    with pytest.raises(ConfigError, match="one specialist of the camera"):
        SpecialistProcesses([row, row])
    processes = SpecialistProcesses([("prosody", ProsodySettings())])
    assert processes.camera is None and processes.voice == []


async def test_a_specialist_that_does_not_load_is_missing_for_the_camera_and_for_nothing_else():
    processes = SpecialistProcesses(
        [(TARGET, StrangeSettings(fault="missing")), ("prosody", ProsodySettings())]
    )
    processes.start()
    try:
        await until(lambda: processes.camera is None)
        await until(lambda: processes.voice[0][1].is_ready)
    finally:
        await processes.close()
