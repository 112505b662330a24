"""Deadlines of a recogniser that is a service, on virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import STTService

from parley.core.call_events import EngineFailedOver
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.processors.perception.failover_stt import ANSWER_S, FINAL_S, PROBE_S, WORDLESS_MS
from tests import virtual_time
from tests.fakes.recogniser_line import EMBEDDED, ONSET_MS, RecogniserLine
from tests.voices import silence

COOL_DOWN_MS = 60_000


class SlowSttService(STTService):
    """Recogniser that gives one partial and one final word for each voice, or none.

    Args:
        partial_s: from the onset of a voice to its partial word; None for none.
        final_s: from the end of a voice to its final word; None for none.
    """

    def __init__(self, partial_s: float | None, final_s: float | None) -> None:
        super().__init__(
            ttfs_p99_latency=0.3, settings=STTSettings(model=None, language=None), audio_passthrough=False
        )
        self._partial_s, self._final_s = partial_s, final_s

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame) and self._partial_s is not None:
            self.create_task(self._give(self._partial_s, InterimTranscriptionFrame("hello", "", "")))
        if isinstance(frame, VADUserStoppedSpeakingFrame) and self._final_s is not None:
            self.create_task(self._give(self._final_s, TranscriptionFrame("hello", "", "")))

    async def _give(self, after_s: float, frame: Frame) -> None:
        await asyncio.sleep(after_s)
        await self.push_frame(frame)


def play(
    partial_s: float | None,
    final_s: float | None,
    script: Callable[[RecogniserLine], Awaitable[None]],
    *,
    has_failed: bool = False,
) -> RecogniserLine:
    async def run() -> RecogniserLine:
        async def build() -> FrameProcessor:
            return SlowSttService(partial_s, final_s)

        breaker = CircuitBreaker(max_failures=1, cool_down_ms=COOL_DOWN_MS)
        if has_failed:
            # In another call, a cool-down ago.
            breaker.on_failure(round(virtual_time.START_S * 1_000) - COOL_DOWN_MS)
        line = RecogniserLine("slow", build, breaker)
        await line.hold(lambda: script(line))
        return line

    return virtual_time.run(run())


def failed_s(line: RecogniserLine) -> float:
    """Return when the embedded recogniser took over, in seconds of the call."""
    [event] = [each for each in line.published if isinstance(each, EngineFailedOver)]
    return event.at_ms / 1000 - virtual_time.START_S


def test_a_long_voice_without_words_is_taken_over_while_it_goes_on():
    line = play(None, None, lambda line: line.speaks(20))
    assert line.reasons() == [FailoverReason.SILENT]
    assert failed_s(line) == pytest.approx((WORDLESS_MS + ONSET_MS) / 1000, abs=0.1)
    assert line.finals() == [*EMBEDDED * 4]


def test_a_short_voice_without_words_is_taken_over_after_its_end():
    line = play(None, None, lambda line: line.speaks(4))
    assert line.reasons() == [FailoverReason.SILENT]
    assert failed_s(line) == pytest.approx(0.8 + 0.2 + ANSWER_S, abs=0.1)
    assert line.finals() == list(EMBEDDED[:4])


def test_words_that_never_become_final_are_taken_over():
    line = play(0.3, None, lambda line: line.speaks(4, pause_ms=4_000))
    assert line.reasons() == [FailoverReason.SILENT]
    assert failed_s(line) == pytest.approx(0.8 + 0.2 + FINAL_S, abs=0.1)
    assert line.finals() == list(EMBEDDED[:4])


@pytest.mark.parametrize(("partial_s", "final_s"), [(0.3, 0.3), (1.5, 0.3), (0.3, 1.8), (None, 0.7)])
def test_a_service_that_is_slow_is_not_given_up(partial_s: float | None, final_s: float):
    line = play(partial_s, final_s, lambda line: line.speaks(8, pause_ms=4_000))
    assert line.finals() == ["hello"]
    assert line.reasons() == [] and line.breaker.is_closed


def test_a_service_has_time_to_answer_the_audio_of_a_stop_of_the_process():
    stop_s, answer_s = 2.2, 0.4

    async def script(line: RecogniserLine) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.call_later(0.5, lambda: loop.stand_still(stop_s))
        await line.speaks(20)

    line = play(0.5 - ONSET_MS / 1000 + stop_s + answer_s, 0.3, script)
    assert line.finals() == ["hello"]
    assert line.reasons() == [] and line.breaker.is_closed


def test_a_voice_that_is_shorter_than_a_word_is_not_checked():
    line = play(None, None, lambda line: line.speaks(1, pause_ms=5_000))
    assert line.finals() == [] and line.reasons() == []


def test_a_silent_call_does_not_keep_the_probe_from_others():
    probes: list[bool] = []

    async def script(line: RecogniserLine) -> None:
        def takes_probe() -> bool:
            return line.breaker.take_probe(round(asyncio.get_running_loop().time() * 1_000))

        await line.sends(silence(round(PROBE_S * 1_000) - 1_000))
        probes.append(takes_probe())
        await line.sends(silence(2_000))
        probes.append(takes_probe())
        await line.speaks(8)

    line = play(0.3, 0.3, script, has_failed=True)
    assert probes == [False, True]
    # The service has worked since: the other call's probe is no longer needed.
    assert line.finals() == ["hello"] and line.breaker.is_closed
