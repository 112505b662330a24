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
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor, FrameProcessorSetup
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import STTService

from parley.core.call_events import EngineFailedOver
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.models.stt import RecogniserTraits
from parley.processors.perception.failover_stt import ANSWER_S, FINAL_S, GRACE_S, PROBE_S, WORDLESS_MS
from parley.processors.perception.owed_words import WordsOwedFrame
from tests import virtual_time
from tests.fakes.recogniser_line import EMBEDDED, ONSET_MS, RecogniserLine
from tests.voices import silence, tone

COOL_DOWN_MS = 60_000
# Deadline of a service that answers a voice as a whole.
WHOLE_S = 10.0


class SlowSttService(STTService):
    """Recogniser that gives one partial and one final word for each voice, or none.

    Args:
        partial_s: from the onset of a voice to its partial word; None for none.
        final_s: from the end of a voice to its final word; None for none.
        owes: it reports that it owes the words of a voice that is over.
        fails_s: from the end of a voice to an error; None for none.
        noises: it finds no words in a voice, and says so when its final word would come.
    """

    def __init__(
        self,
        partial_s: float | None,
        final_s: float | None,
        *,
        owes: bool = False,
        fails_s: float | None = None,
        noises: bool = False,
    ) -> None:
        super().__init__(
            ttfs_p99_latency=0.3, settings=STTSettings(model=None, language=None), audio_passthrough=False
        )
        self._partial_s, self._final_s = partial_s, final_s
        self._owes, self._fails_s, self._noises = owes, fails_s, noises

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame) and self._partial_s is not None:
            self.create_task(self._give(self._partial_s, InterimTranscriptionFrame("hello", "", "")))
        if not isinstance(frame, VADUserStoppedSpeakingFrame):
            return
        if self._owes:
            await self.push_frame(WordsOwedFrame(True))
        if self._final_s is not None:
            self.create_task(self._give(self._final_s, TranscriptionFrame("hello", "", "")))
        if self._fails_s is not None:
            self.create_task(self._fail(self._fails_s))

    async def _give(self, after_s: float, frame: Frame) -> None:
        await asyncio.sleep(after_s)
        if not self._noises:
            await self.push_frame(frame)
        if self._owes and isinstance(frame, TranscriptionFrame):
            await self.push_frame(WordsOwedFrame(False))

    async def _fail(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        await self.push_error("no more")


def play(
    partial_s: float | None,
    final_s: float | None,
    script: Callable[[RecogniserLine], Awaitable[None]],
    *,
    has_failed: bool = False,
    owes: bool = False,
    fails_s: float | None = None,
    noises: bool = False,
    whole: bool = False,
) -> RecogniserLine:
    async def run() -> RecogniserLine:
        async def build() -> FrameProcessor:
            return SlowSttService(partial_s, final_s, owes=owes, fails_s=fails_s, noises=noises)

        breaker = CircuitBreaker(max_failures=1, cool_down_ms=COOL_DOWN_MS)
        if has_failed:
            # In another call, a cool-down ago.
            breaker.on_failure(round(virtual_time.START_S * 1_000) - COOL_DOWN_MS)
        traits = RecogniserTraits(has_partials=not whole)
        line = RecogniserLine("slow", build, breaker, traits=traits, answer_s=WHOLE_S if whole else None)
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


@pytest.mark.parametrize(("partial_s", "final_s"), [(0.3, 0.3), (1.5, 0.3), (0.3, 0.9), (None, 0.7)])
def test_a_service_that_is_slow_is_not_given_up(partial_s: float | None, final_s: float):
    line = play(partial_s, final_s, lambda line: line.speaks(8, pause_ms=4_000))
    assert line.finals() == ["hello"]
    assert line.reasons() == [] and line.breaker.is_closed


def test_final_words_after_the_deadline_are_those_of_the_embedded_recogniser():
    line = play(0.3, 1.8, lambda line: line.speaks(8, pause_ms=4_000))
    assert line.finals() == [*EMBEDDED, *EMBEDDED[:3]]
    # They came too late once: other calls go on with the service.
    assert line.reasons() == [FailoverReason.SILENT] and line.breaker.is_closed
    line.breaker.on_doubt(round(failed_s(line) * 1_000))
    assert not line.breaker.is_closed


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


def owed(line: RecogniserLine) -> list[bool | str]:
    """Return reports of owed words, and the words, in their order."""
    kinds = WordsOwedFrame | TranscriptionFrame
    return [
        frame.is_owed if isinstance(frame, WordsOwedFrame) else frame.text
        for _, frame in line.heard.frames
        if isinstance(frame, kinds)
    ]


def test_words_that_a_service_owes_are_reported():
    line = play(0.3, 0.5, lambda line: line.speaks(4), owes=True)
    assert owed(line) == [True, "hello", False]


def test_words_are_owed_until_the_next_recogniser_has_found_them():
    line = play(None, None, lambda line: line.speaks(4), owes=True)
    assert line.reasons() == [FailoverReason.SILENT]
    assert owed(line) == [True, " ".join(EMBEDDED[:4]), False]


def test_words_of_the_next_recogniser_are_owed_in_later_turns_too():
    async def script(line: RecogniserLine) -> None:
        await line.speaks(4)
        await line.speaks(2)

    line = play(None, None, script)
    assert owed(line)[-3:] == [True, " ".join(EMBEDDED[:2]), False]


async def makes_a_noise(line: RecogniserLine) -> None:
    """Make a noise that is taken for a voice, and in which the embedded recogniser finds no words."""
    await line.worker.queue_frame(VADUserStartedSpeakingFrame())
    await line.sends(tone(1_000, level=0.002))
    await line.worker.queue_frame(VADUserStoppedSpeakingFrame())
    await line.sends(silence(5_000))


def test_a_noise_owes_no_words():
    line = play(None, None, makes_a_noise, owes=True)
    assert line.reasons() == [] and owed(line) == [True, False]


def test_a_service_that_fails_while_it_owes_words_passes_the_debt_on():
    line = play(None, None, lambda line: line.speaks(4), fails_s=0.2, owes=True)
    assert line.reasons() == [FailoverReason.ERROR]
    assert owed(line) == [True, " ".join(EMBEDDED[:4]), False]


def test_a_service_that_fails_after_the_next_recogniser_found_no_words_owes_none():
    # The embedded recogniser has answered between ``ANSWER_S`` and this.
    line = play(None, None, makes_a_noise, fails_s=ANSWER_S + 1.0, owes=True)
    assert line.reasons() == [FailoverReason.ERROR]
    assert owed(line) == [True, False]


@pytest.mark.parametrize("final_s", [0.3, 3.0, 9.5])
def test_a_service_without_partial_texts_has_its_own_deadline_for_an_answer(final_s: float):
    async def script(line: RecogniserLine) -> None:
        await line.speaks(30, pause_ms=11_000)
        await line.speaks(4, pause_ms=11_000)

    line = play(None, final_s, script, owes=True, whole=True)
    assert line.finals() == ["hello", "hello"]
    assert owed(line) == [True, "hello", False] * 2
    assert line.reasons() == [] and line.breaker.is_closed


def test_a_service_without_partial_texts_that_reports_nothing_is_taken_over_after_its_deadline():
    line = play(None, None, lambda line: line.speaks(4, pause_ms=14_000), owes=True, whole=True)
    assert line.reasons() == [FailoverReason.SILENT]
    assert failed_s(line) == pytest.approx(0.8 + 0.2 + WHOLE_S + GRACE_S, abs=0.1)
    assert owed(line) == [True, " ".join(EMBEDDED[:4]), False]


def test_an_error_of_a_service_without_partial_texts_passes_all_voices_without_words_on():
    async def script(line: RecogniserLine) -> None:
        await line.speaks(3, pause_ms=400)
        await line.speaks(2, pause_ms=4_000)

    line = play(None, None, script, fails_s=1.0, owes=True, whole=True)
    assert line.reasons() == [FailoverReason.ERROR]
    assert line.finals() == list(EMBEDDED)


def test_an_empty_answer_of_a_service_without_partial_texts_is_an_answer():
    async def script(line: RecogniserLine) -> None:
        # The embedded recogniser would find words in it.
        await line.speaks(4, pause_ms=14_000)

    line = play(None, 1.0, script, owes=True, noises=True, whole=True)
    assert line.finals() == [] and owed(line) == [True, False]
    assert line.reasons() == [] and line.breaker.is_closed


def test_a_voice_before_the_service_is_open_is_heard_with_its_beginning():
    begun_s: list[float] = []

    class LateService(SlowSttService):
        async def setup(self, setup: FrameProcessorSetup) -> None:
            await super().setup(setup)
            await asyncio.sleep(1.5)

        async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
            await super().process_frame(frame, direction)
            if isinstance(frame, VADUserStartedSpeakingFrame):
                begun_s.append(frame.start_secs)

    async def run() -> RecogniserLine:
        async def build() -> FrameProcessor:
            return LateService(None, 0.3, owes=True)

        breaker = CircuitBreaker(max_failures=1, cool_down_ms=COOL_DOWN_MS)
        traits = RecogniserTraits(has_partials=False)
        line = RecogniserLine("slow", build, breaker, traits=traits, answer_s=WHOLE_S)
        await line.hold(lambda: line.speaks(4, pause_ms=3_000))
        return line

    line = virtual_time.run(run())
    assert line.finals() == ["hello"] and line.reasons() == []
    # The voice of 0.8 s and the silence after it, from before its onset.
    assert begun_s == [pytest.approx(1.5, abs=0.1)]
