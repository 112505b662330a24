"""Stretches of a caller's voice, and what becomes of slow, failing and hanging specialists."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.core.call_events import (
    AnnotationReported,
    SpecialistLeft,
    VoiceEnded,
    VoicePaused,
    VoiceResumed,
    VoicesLearnt,
    VoiceStarted,
)
from parley.core.errors import StoreUnavailableError
from parley.core.timeline import DiarPayload, KnownVoice, Source
from parley.pipelines.engines.specialist_processes import SpecialistProcesses
from parley.processors.fusion.voice_specialists import (
    BEFORE_MS,
    LONGEST_MS,
    MOST_PENDING,
    VoiceSpecialists,
)
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from tests.fakes.specialists import StrangeSettings

TARGET = "tests.fakes.specialists:StrangeSpecialist"
VOICED_MS = 128
Recall = Callable[[], Awaitable[Sequence[KnownVoice]]]


class Call:
    """Caller's audio and voice events of one call, and what was reported."""

    def __init__(self, processes: SpecialistProcesses, recall: Recall | None) -> None:
        self.events, self.clock = CallEvents(), LoopClock()
        self.reported: list[AnnotationReported] = []
        self.left: list[Source] = []
        self.events.subscribe(AnnotationReported, self.reported.append)
        self.events.subscribe(SpecialistLeft, lambda event: self.left.append(event.stream))
        self.learnt: list[VoicesLearnt] = []
        self.events.subscribe(VoicesLearnt, self.learnt.append)
        self.specialists = VoiceSpecialists(
            processes.voice, clock=self.clock, events=self.events, rate_hz=16_000, recall=recall
        )

    def hear(self, ms: int) -> None:
        for _ in range(ms // 20):
            self.specialists.hear(bytes(640))

    def say(self, ms: int) -> None:
        """Speak, with the pause after it."""
        self.hear(VOICED_MS)
        self.events.publish(VoiceStarted(0, VOICED_MS))
        self.hear(ms - VOICED_MS)
        self.events.publish(VoicePaused(0))
        self.events.publish(VoiceEnded(0, 128))

    @property
    def stretches_ms(self) -> list[int]:
        """Lengths of the stretches that were judged."""
        found = (each.annotation.payload for each in self.reported if each.annotation is not None)
        return [round((one.end_us - one.start_us) / 1000) for one in found if isinstance(one, DiarPayload)]


async def until(met: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not met():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def call_with(*, recall: Recall | None = None, **settings: object) -> AsyncIterator[Call]:
    processes = SpecialistProcesses([(TARGET, StrangeSettings(**settings))])  # type: ignore[arg-type]
    processes.start()
    call = Call(processes, recall)
    running = asyncio.create_task(call.specialists.run())
    try:
        # The first sign of life that is reported needs an open stream.
        def is_open() -> bool:
            call.events.publish(VoiceEnded(0, 128))
            return bool(call.reported)

        await until(is_open)
        call.reported.clear()
        yield call
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await processes.close()


async def test_a_stretch_ends_with_a_pause_and_the_next_begins_with_the_voice():
    async with call_with() as call:
        call.hear(3_000)
        call.say(1_000)
        await until(lambda: len(call.stretches_ms) == 1)
        call.events.publish(VoiceResumed(0))
        call.hear(600)
        call.events.publish(VoicePaused(0))
        await until(lambda: len(call.stretches_ms) == 2)
        # The soft onset before the voice belongs to it; silence before that does not.
        assert call.stretches_ms[0] == pytest.approx(1_000 + BEFORE_MS, abs=40)
        assert call.stretches_ms[1] == pytest.approx(600 + BEFORE_MS, abs=120)
        event = next(each.annotation for each in call.reported if each.annotation is not None)
        assert event.speaker_id == "speaker 1" and event.event_us == event.payload.end_us
        assert event.event_us <= event.arrival_us <= call.clock.now_us()


async def test_a_long_voice_is_judged_in_pieces_and_a_click_is_not():
    async with call_with() as call:
        call.say(160)
        call.say(2 * LONGEST_MS + 400)
        await until(lambda: len(call.stretches_ms) == 3)
        assert call.stretches_ms[:2] == [LONGEST_MS, LONGEST_MS]


async def test_a_voice_whose_audio_stops_is_judged_up_to_there():
    async with call_with() as call:
        call.hear(VOICED_MS)
        call.events.publish(VoiceStarted(0, VOICED_MS))
        call.hear(800 - VOICED_MS)
        heard_us = call.clock.now_us()
        # A client that sends nothing any more: there is no pause in its audio, and the voice ends later.
        await until(lambda: call.clock.now_us() - heard_us > 200_000)
        call.events.publish(VoiceEnded(0, 128))
        await until(lambda: len(call.stretches_ms) == 1)
        [found] = [each.annotation for each in call.reported if each.annotation is not None]
        assert found.event_us - heard_us < 100_000
        # Nothing more is waited for, and the next voice is a stretch of its own.
        signs = [each.judged_us for each in call.reported if each.annotation is None]
        assert signs[-1] is not None and signs[-1] > heard_us
        call.say(600)
        await until(lambda: len(call.stretches_ms) == 2)
        assert call.stretches_ms[1] == pytest.approx(600, abs=40)


async def test_signs_of_life_pass_no_stretch_that_is_not_answered_yet():
    async with call_with(fault="slow") as call:
        began_us = call.clock.now_us()
        call.say(500)
        signs = [each for each in call.reported if each.annotation is None]
        assert signs and all(each.judged_us is not None and each.judged_us < began_us for each in signs)
        await until(lambda: len(call.stretches_ms) == 1)
        last = call.reported[-1]
        assert last.annotation is None and last.judged_us is not None and last.judged_us >= began_us


async def test_other_streams_wait_only_for_the_end_of_a_stretch():
    async with call_with(fault="slow") as call:
        call.say(500)
        ended_us = call.clock.now_us()
        last = call.reported[-1]
        assert last.annotation is None and last.passed_us is not None and last.judged_us is not None
        assert last.judged_us < last.passed_us <= ended_us


async def test_a_slow_specialist_is_not_sent_more_than_it_can_take():
    async with call_with(fault="slow") as call:
        for _ in range(3 * MOST_PENDING):
            call.say(400)
        await until(lambda: len(call.stretches_ms) == MOST_PENDING)
        await asyncio.sleep(0.5)
        assert len(call.stretches_ms) == MOST_PENDING
        call.say(400)
        await until(lambda: len(call.stretches_ms) == MOST_PENDING + 1)
        assert call.left == []


async def test_voices_of_earlier_calls_go_out_once_and_what_is_learnt_comes_back():
    async def recall() -> Sequence[KnownVoice]:
        return [KnownVoice("speaker 1", (1.0, 0.0), 30.0), KnownVoice("speaker 2", (0.0, 1.0), 30.0)]

    async with call_with(recall=recall, voiceprints=True) as call:
        for count in (1, 2):
            call.say(500)
            await until(lambda count=count: len(call.learnt) == count)
        # Two voices went to the process, with the first stretch alone.
        assert [voices.voices[0].seconds for voices in call.learnt] == [201.0, 2.0]
        assert [voice.speaker_id for voice in call.learnt[-1].voices] == ["speaker 1", "speaker 2"]
        found = [each.annotation.payload for each in call.reported if each.annotation is not None]
        assert all(isinstance(each, DiarPayload) and each.embedding == () for each in found)


async def test_without_the_voices_of_earlier_calls_everyone_is_new():
    async def recall() -> Sequence[KnownVoice]:
        raise StoreUnavailableError("the database does not answer")

    async with call_with(recall=recall, voiceprints=True) as call:
        call.say(500)
        await until(lambda: len(call.learnt) == 1)
        assert [voice.seconds for voice in call.learnt[0].voices] == [1.0]


async def test_a_specialist_that_hangs_is_lost_and_comes_back(tmp_path: Path):
    async with call_with(fault="hang", once=tmp_path / "hung") as call:
        call.say(500)
        await until(lambda: call.left == [Source.DIAR])

        def is_back() -> bool:
            call.say(500)
            return bool(call.stretches_ms)

        await until(is_back)


async def test_a_stretch_that_fails_costs_itself_and_no_task():
    async with call_with(fault="fail") as call:
        call.say(500)
        await until(lambda: call.left == [Source.DIAR])
        assert call.stretches_ms == []
