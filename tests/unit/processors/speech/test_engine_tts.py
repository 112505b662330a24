"""The speech service in a real pipeline with a paced output, on virtual time and without threads."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    ErrorFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSSpeakFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection

from parley.core.errors import EngineError
from parley.models.tts import SpeechPiece
from parley.processors.speech.engine_tts import ClauseAggregator, EngineTtsService, EngineTtsSettings
from parley.processors.speech.spoken_at import BrokeOffFrame
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.paced_output import Collector, PacedOutput
from tests.fakes.pipecat_clock import PipecatClock
from tests.fakes.spoken_call import SpokenCall, hold_call
from tests.fakes.tts import ToneTts


class NeverRuns(Executor):
    """Executor that accepts work and does nothing: an engine that hangs."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return Future()


class Call(SpokenCall):
    """Pipeline of a call: upstream collector, speech service, collector, paced output, collector."""

    def __init__(self, engine: Any, options: EngineTtsSettings, executor: Executor) -> None:
        self.service = EngineTtsService(engine, executor=executor, options=options)
        self.upstream = Collector(FrameDirection.UPSTREAM)
        self.made = Collector(FrameDirection.DOWNSTREAM)
        self.output = PacedOutput()
        self.heard = Collector(FrameDirection.DOWNSTREAM)
        worker = PipelineWorker(
            Pipeline([self.upstream, self.service, self.made, self.output, self.heard]),
            params=PipelineParams(audio_out_sample_rate=16_000),
            clock=PipecatClock(),
            cancel_on_idle_timeout=False,
            enable_rtvi=False,
        )
        super().__init__(worker)

    async def wait_s(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def words(self) -> list[str]:
        return [frame.text for frame in self.heard.of(TTSTextFrame)]


def play(
    scenario: Callable[[Call], Awaitable[None]],
    engine: Any = None,
    options: EngineTtsSettings | None = None,
    executor: Executor | None = None,
) -> Call:
    def make() -> Call:
        return Call(engine or ToneTts(), options or EngineTtsSettings(), executor or InlineExecutor())

    return hold_call(make, scenario)


REPLY = ("One two three, ", "four five six ", "seven eight nine ten eleven twelve, ", "and thirteen.")
REPLY_WORDS = "".join(REPLY).split()


def test_a_reply_is_spoken_whole_with_every_word_in_order():
    call = play(lambda call: call.says(*REPLY))
    assert call.words() == REPLY_WORDS
    assert call.heard.of(LLMFullResponseEndFrame)


def test_the_first_clause_goes_to_the_engine_before_the_sentence_is_complete():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three, "))
        await call.wait_s(0.02)
        assert engine.clauses == ["One two three,"]
        assert call.made.of(TTSAudioRawFrame)
        await call.worker.queue_frame(LLMTextFrame("four."))
        await call.worker.queue_frame(LLMFullResponseEndFrame())

    assert play(scenario, engine).words() == ["One", "two", "three,", "four."]


def test_the_end_of_the_reply_speaks_the_rest_at_once():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        await call.says("Yes")
        await call.wait_s(0.02)
        assert engine.clauses == ["Yes"]

    play(scenario, engine)


def test_another_voice_speaks_from_the_next_reply_on():
    first, second = ToneTts(), ToneTts()

    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three, "))
        await call.wait_s(0.02)
        call.service.prepare("Seven.")
        call.service.choose(second)
        await call.worker.queue_frame(LLMTextFrame("four five six seven eight nine ten."))
        await call.worker.queue_frame(LLMFullResponseEndFrame())
        await call.wait_s(3)
        await call.says("Seven.")
        await call.wait_s(1)
        call.service.choose(first)
        await call.says("Eight.")

    play(scenario, first)
    # What was prepared for the next reply is not said in the former voice.
    assert first.clauses == ["One two three,", "Seven.", "four five six seven eight nine ten.", "Eight."]
    assert second.clauses == ["Seven."]


def test_clauses_of_a_reply_play_without_a_gap():
    call = play(lambda call: call.says(*REPLY))
    audio = call.output.audio()[: len(REPLY_WORDS) * 1600]
    quiet = np.abs(audio.reshape(-1, 80).astype(int)).max(axis=1) < 1000
    assert not quiet.any()
    starts = [at for at, _ in call.output.played]
    assert max(np.diff(starts)) < 0.041


def test_an_engine_that_gives_little_at_a_time_is_not_waited_for_and_frames_are_few():
    call = play(lambda call: call.says(*REPLY))
    frames = call.made.of(TTSAudioRawFrame)
    assert {frame.sample_rate for frame in frames} == {16_000}
    assert max(len(frame.audio) for frame in frames) == 16 * 40 * 2
    assert len(frames) <= len(REPLY_WORDS) * 100 / 40 + 4


def test_an_engine_that_is_ahead_gives_two_short_frames_first_and_long_ones_after_them():
    call = play(lambda call: call.says("One two three four five."), ToneTts(piece_ms=470))
    lengths_ms = [len(frame.audio) // 32 for frame in call.made.of(TTSAudioRawFrame)]
    assert lengths_ms == [40, 40, 120, 120, 120, 40, 20]
    assert call.words() == ["One", "two", "three", "four", "five."]


@pytest.mark.parametrize("played_ms", [30, 170, 430, 790, 1130])
def test_an_interruption_leaves_exactly_the_heard_words(played_ms):
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_s(played_ms / 1000)
        await call.interrupts()
        await call.wait_s(3)

    call = play(scenario)
    # A word of 100 ms counts as heard once half of it has been played.
    assert call.words() == REPLY_WORDS[: (played_ms + 50) // 100]
    assert len(call.output.audio()) <= (played_ms + 80) * 16


def test_a_reply_after_an_interruption_starts_clean():
    async def scenario(call: Call) -> None:
        await call.says(*REPLY)
        await call.wait_s(0.33)
        await call.interrupts()
        await call.says("Alpha beta.")
        await call.wait_s(0.001)

    call = play(scenario)
    assert call.words() == ["One", "two", "three,", "Alpha", "beta."]
    began, last = (
        next(at for at, frame in call.heard.frames if isinstance(frame, TTSTextFrame) and frame.text == text)
        for text in ("Alpha", "beta.")
    )
    assert began - virtual_time.START_S == pytest.approx(0.33 + 0.05, abs=0.02)
    assert last - began == pytest.approx(0.1, abs=0.005)


def test_an_interruption_in_the_middle_of_the_text_drops_what_was_not_yet_a_clause():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two"))
        await call.wait_s(0.01)
        await call.interrupts()
        await call.wait_s(0.1)
        await call.says("Alpha.")

    assert play(scenario).words() == ["Alpha."]


def test_words_of_a_reply_after_a_filler_wait_for_the_filler_to_end():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(TTSSpeakFrame("Let me see.", append_to_context=False))
        await call.says("Alpha beta.")
        await call.wait_s(0.37)
        await call.interrupts()

    # 370 ms: the filler's 300 ms and the first 70 of "Alpha".
    assert play(scenario).words() == ["Let", "me", "see.", "Alpha"]


def test_words_after_a_pause_of_the_model_are_timed_from_when_they_sound():
    async def scenario(call: Call) -> None:
        await call.worker.queue_frame(LLMFullResponseStartFrame())
        await call.worker.queue_frame(LLMTextFrame("One two three. "))
        await call.wait_s(5)
        await call.worker.queue_frame(LLMTextFrame("Four five.\n"))
        await call.wait_s(0.17)
        await call.interrupts()

    assert play(scenario).words() == ["One", "two", "three.", "Four", "five."]


def test_synthesis_stays_a_bounded_lead_ahead_of_what_is_heard():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        await call.says(*(f"word{i} is here.\n" for i in range(20)))
        await call.wait_s(0.01)
        # 0.3 s a clause: the fourth starts when 0.9 s are waiting, the fifth has to wait.
        assert len(engine.clauses) == 4
        await call.wait_s(8)

    call = play(scenario, engine, EngineTtsSettings(max_lead_ms=1000))
    assert len(call.words()) == 60
    assert len(call.heard.of(TTSStoppedFrame)) == 1


@pytest.mark.parametrize("times", [20, 60])
def test_a_long_text_to_speak_is_cut_into_clauses(times: int):
    engine = ToneTts(word_ms=20)
    text = "Thank you for calling, " + ", ".join("this goes on and on" for _ in range(times)) + "."
    call = play(lambda call: call.worker.queue_frame(TTSSpeakFrame(text)), engine)
    assert engine.clauses[0] == "Thank you for calling,"
    assert max(len(clause) for clause in engine.clauses) <= 160
    # It is announced as it stands: the part that was not heard is derived from there.
    announced = [frame.text for frame in call.heard.of(AggregatedTextFrame) if frame.will_be_spoken]
    assert announced == [text]
    assert call.words() == text.split()


@pytest.mark.parametrize("times", [20, 60])
def test_what_a_voice_that_is_gone_did_not_say_of_a_long_text_is_no_word(times: int):
    class DiesInTheSecond(ToneTts):
        def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
            if self.clauses:
                raise EngineError("the voice is gone", engine="tone", retryable=False)
            return super().synthesize(text, sink)

    text = "Thank you for calling, " + ", ".join("this goes on and on" for _ in range(times)) + "."
    call = play(lambda call: call.worker.queue_frame(TTSSpeakFrame(text)), DiesInTheSecond(word_ms=20))
    assert not call.service.is_usable
    assert call.words() == "Thank you for calling,".split()
    # The recorder of heard words is notified, after the last word.
    kinds = (TTSTextFrame, BrokeOffFrame)
    received = [type(frame) for _, frame in call.heard.frames if isinstance(frame, kinds)]
    assert received[:4] == [TTSTextFrame] * 4 and set(received[4:]) == {BrokeOffFrame}


def test_replies_queued_at_once_that_no_one_can_pronounce_keep_their_order():
    async def scenario(call: Call) -> None:
        for _ in range(4):
            await call.says("🙂")
        await call.says("Hello.")

    call = play(scenario)
    assert not call.upstream.of(ErrorFrame)
    assert call.words() == ["🙂"] * 4 + ["Hello."]
    # Each text lies between the beginning and the end of its own reply, as the context needs it.
    kinds = (LLMFullResponseStartFrame, TTSTextFrame, LLMFullResponseEndFrame)
    order = [type(frame) for _, frame in call.heard.frames if isinstance(frame, kinds)]
    assert order == list(kinds) * 5


def test_a_reply_with_words_before_one_that_no_one_can_pronounce_is_said_first():
    async def scenario(call: Call) -> None:
        await call.says("Alpha beta.")
        await call.says("🙂")
        await call.says("Gamma.")

    call = play(scenario)
    assert call.words() == ["Alpha", "beta.", "🙂", "Gamma."]


def test_a_failing_engine_is_reported_and_only_what_sounded_is_a_word():
    engine = ToneTts(fail_after_pieces=12)

    async def scenario(call: Call) -> None:
        await call.says("One two three four five six.")
        await call.wait_s(1)
        engine.fail_after_pieces = None
        await call.says("Alpha beta.")

    call = play(scenario, engine)
    errors = call.upstream.of(ErrorFrame)
    assert any("ToneTts could not speak" in error.error for error in errors)
    # Twelve pieces of 20 ms: "three" begins in the last frame.
    assert call.words() == ["One", "two", "three", "Alpha", "beta."]


def test_a_reply_goes_on_after_a_clause_that_failed():
    class FailsOnce(ToneTts):
        def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
            if not self.clauses:
                self.clauses.append(text)
                raise EngineError("no breath", engine="tone")
            return super().synthesize(text, sink)

    call = play(lambda call: call.says("One two three.\n", "Four five."), FailsOnce())
    assert call.words() == ["Four", "five."]


def test_an_engine_that_cannot_be_retried_makes_the_service_unusable():
    class Dead(ToneTts):
        def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
            raise EngineError("the voice is gone", engine="tone", retryable=False)

    call = play(lambda call: call.says("One two three."), Dead())
    assert not call.service.is_usable


def test_an_engine_that_hangs_is_given_up_after_its_deadline():
    async def scenario(call: Call) -> None:
        await call.says("One two three.")
        await call.wait_s(0.6)
        assert any("no audio in time" in error.error for error in call.upstream.of(ErrorFrame))

    call = play(scenario, options=EngineTtsSettings(engine_timeout_ms=500), executor=NeverRuns())
    assert call.words() == []


async def test_the_aggregator_gives_clauses_and_starts_over_after_a_flush():
    aggregator = ClauseAggregator()
    first = [clause.text async for clause in aggregator.aggregate("One two three, four")]
    rest = await aggregator.flush()
    assert (first, rest.text if rest else None) == (["One two three,"], "four")
    assert await aggregator.flush() is None
    again = [clause.text async for clause in aggregator.aggregate("Five six seven, eight")]
    assert again == ["Five six seven,"]
    assert aggregator.text.text == "eight"
    await aggregator.handle_interruption()
    assert aggregator.text.text == ""


def test_a_clause_that_was_prepared_is_spoken_without_asking_the_engine_again():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        call.service.prepare("One two three,")
        assert engine.clauses == ["One two three,"]
        await call.says(*REPLY)

    call = play(scenario, engine)
    assert call.words() == REPLY_WORDS
    assert engine.clauses.count("One two three,") == 1


def test_another_clause_than_the_prepared_one_is_synthesised():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        call.service.prepare("Something else.")
        await call.says("Yes.")

    assert play(scenario, engine).words() == ["Yes."]
    assert engine.clauses == ["Something else.", "Yes."]


def test_a_prepared_clause_is_spoken_once():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        call.service.prepare("Yes.")
        await call.says("Yes.")
        await call.wait_s(1)
        await call.says("Yes.")

    assert play(scenario, engine).words() == ["Yes.", "Yes."]
    assert engine.clauses == ["Yes.", "Yes."]


@pytest.mark.parametrize("how", ["forgotten", "interrupted", "replaced", "the call ends"])
def test_an_engine_that_prepares_stops_when_no_one_will_hear_it(how: str):
    # One piece fits; the engine waits for room and is released.
    engine = ToneTts()
    options = EngineTtsSettings(buffer_ms=100)
    with ThreadPoolExecutor(2) as threads:

        async def scenario(call: Call) -> None:
            call.service.prepare("one two three four five six seven eight nine ten")
            if how == "forgotten":
                call.service.forget_prepared()
            elif how == "interrupted":
                await call.interrupts()
                await call.wait_s(0.01)
            elif how == "replaced":
                call.service.prepare("yes")

        play(scenario, engine, options, threads)
    assert engine.stopped_at_ms
    assert engine.stopped_at_ms[0] <= 100


def test_an_engine_that_fails_on_a_prepared_clause_is_reported_when_the_clause_is_due():
    async def scenario(call: Call) -> None:
        call.service.prepare("One two three,")
        await call.wait_s(0.1)
        assert not call.upstream.of(ErrorFrame)
        await call.says(*REPLY)

    call = play(scenario, ToneTts(fail_after_pieces=2))
    assert call.upstream.of(ErrorFrame)


def test_a_prepared_clause_that_had_no_room_for_too_long_is_synthesised_again():
    engine = ToneTts()

    async def scenario(call: Call) -> None:
        call.service.prepare("One two three,")
        assert engine.stopped_at_ms
        # From here on every clause fits.
        engine.word_ms = 10
        await call.says(*REPLY)

    call = play(scenario, engine, EngineTtsSettings(buffer_ms=100, stall_timeout_ms=10))
    assert not call.upstream.of(ErrorFrame)
    assert call.words() == REPLY_WORDS
