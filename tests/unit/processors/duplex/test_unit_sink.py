"""A client that has whole units ahead of the pipeline: its notifications, and the frames that follow."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
from pipecat.frames.frames import (
    Frame,
    LLMFullResponseEndFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)

from parley.core.media import float_to_pcm16
from parley.core.units import Vote
from parley.models.omni import UnitResult
from parley.processors.duplex.voice import EngineVoice, SpeechPacing
from parley.protocols.client_protocol import ALREADY_SENT, Faltered, Happening, UnitOver
from parley.runtime.event_stream import CallEvents
from tests import virtual_time

RATE_HZ = 24_000
LOUD = np.full(RATE_HZ, 0.5, np.float32)


class RecordedSink:
    """Output that records what it receives, in order."""

    rate_hz = RATE_HZ

    def __init__(self) -> None:
        self.had: list[bytes | Happening | str] = []

    def say(self, pcm: bytes) -> None:
        self.had.append(pcm)

    def cut(self) -> None:
        self.had.append("cut")

    def report(self, happening: Happening) -> None:
        self.had.append(happening)


class Bench:
    """A voice, its output, and the pushed frames; ``hold`` keeps its frames from leaving."""

    def __init__(self, *, keeps_apart: bool = False, rate_hz: int = RATE_HZ) -> None:
        self.unit_sink = RecordedSink()
        self.pushed: list[Frame] = []
        self.yields = 0
        self.may_push = asyncio.Event()
        self.may_push.set()
        self.voice = EngineVoice(
            self._push,
            CallEvents(),
            settings=SpeechPacing(),
            playout=None,
            keeps_apart=lambda: keeps_apart,
            interrupt=self._yielded,
            unit_sink=self.unit_sink,
        )
        self.voice.begin(rate_hz, unit_ms=1_000, whole_units=True)

    async def _push(self, frame: Frame) -> None:
        await self.may_push.wait()
        self.pushed.append(frame)

    async def _yielded(self) -> None:
        self.yields += 1

    def unit(self, result: UnitResult) -> None:
        """Deliver a unit as a ticker does: the result, and the notifications after it, in one step."""
        self.voice.say(result)
        self.voice.follow(UnitOver(result.vote.value, result.text))

    @property
    def audio(self) -> list[OutputAudioRawFrame]:
        return [frame for frame in self.pushed if isinstance(frame, OutputAudioRawFrame)]


def play(caller: Callable[[Bench], Awaitable[None]], **made: object) -> Bench:
    async def run() -> Bench:
        bench = Bench(**made)  # type: ignore[arg-type]
        task = asyncio.create_task(bench.voice.run())
        await asyncio.sleep(0)
        await caller(bench)
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait({task})
        return bench

    return virtual_time.run(run())


def speak(text: str = " so", *, ends: bool = False, audio: np.ndarray = LOUD) -> UnitResult:
    return UnitResult(Vote.SPEAK, audio=audio, text=text, end_of_turn=ends)


LISTEN = UnitResult(Vote.LISTEN)


def test_a_unit_is_told_at_once_and_its_frames_follow() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(speak())
        # No item has had its turn yet.
        assert bench.unit_sink.had == [float_to_pcm16(LOUD), UnitOver("speak", " so")]
        assert not bench.pushed
        await asyncio.sleep(1)
        bench.unit(speak(" far", ends=True))

    bench = play(caller)
    assert [frame.audio for frame in bench.audio] == [float_to_pcm16(LOUD)] * 2
    assert all(isinstance(frame, TTSAudioRawFrame) and ALREADY_SENT.of(frame) for frame in bench.audio)
    assert isinstance(bench.pushed[-1], LLMFullResponseEndFrame)
    assert not any(isinstance(frame, OutputTransportMessageFrame) for frame in bench.pushed)


def test_a_bot_that_yields_is_cut_before_its_unit_is_over() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(speak())
        await asyncio.sleep(0.5)
        bench.unit(UnitResult(Vote.YIELD))

    bench = play(caller)
    assert bench.unit_sink.had[1:] == [UnitOver("speak", " so"), "cut", UnitOver("yield", "")]
    assert bench.yields == 1


def test_what_was_told_and_is_dropped_before_its_frames_left_is_cut() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(speak())
        bench.voice.drop()

    bench = play(caller)
    assert bench.unit_sink.had[-1] == "cut" and not bench.audio

    async def yields(bench: Bench) -> None:
        bench.unit(speak())
        bench.unit(UnitResult(Vote.YIELD))

    # The caller has heard of it, so a waiter for that is notified.
    assert play(yields).yields == 1


def test_pieces_that_wait_for_their_frames_keep_their_reply() -> None:
    async def caller(bench: Bench) -> None:
        bench.may_push.clear()
        bench.unit(speak(" first", ends=True))
        await asyncio.sleep(0)
        # The frames of the first are held up; another reply begins.
        bench.unit(speak(" second", ends=True))
        bench.may_push.set()

    bench = play(caller, keeps_apart=True)
    assert [type(each) for each in bench.unit_sink.had] == [bytes, UnitOver, bytes, UnitOver]
    received = [
        (type(frame), frame.context_id)
        for frame in bench.pushed
        if isinstance(frame, (TTSStartedFrame, TTSAudioRawFrame, TTSStoppedFrame))
    ]
    first, second = received[0][1], received[-1][1]
    assert first != second
    one = (TTSStartedFrame, TTSAudioRawFrame, TTSStoppedFrame)
    assert received == [*((kind, first) for kind in one), *((kind, second) for kind in one)]


def test_a_hum_is_told_before_its_unit() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(UnitResult(Vote.BACKCHANNEL, audio=LOUD[:4_800]))

    bench = play(caller)
    assert bench.unit_sink.had == [float_to_pcm16(LOUD[:4_800]), UnitOver("backchannel", "")]
    [hum] = bench.audio
    assert ALREADY_SENT.of(hum)


def test_an_engine_of_another_rate_is_told_by_the_frames() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(speak(ends=True))

    bench = play(caller, rate_hz=16_000)
    assert not bench.unit_sink.had
    assert not any(ALREADY_SENT.is_on(frame) for frame in bench.audio)
    assert isinstance(bench.pushed[-1], OutputTransportMessageFrame)


def test_of_an_engine_that_failed_nothing_more_is_told() -> None:
    async def caller(bench: Bench) -> None:
        bench.unit(speak())
        assert bench.voice.fail(Faltered("it failed"))
        bench.voice.begin(RATE_HZ, unit_ms=1_000, whole_units=True)
        bench.unit(LISTEN)

    bench = play(caller)
    assert bench.unit_sink.had[2:] == ["cut", Faltered("it failed"), UnitOver("listen", "")]
    assert not bench.audio
