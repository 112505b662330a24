"""A voice's output as contents for the engine: by frames, without a pipeline."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    InterruptionFrame,
    LLMAssistantPushAggregationFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)

from parley.models.omni.two_tier.content import Content
from parley.processors.duplex.contents import Contents
from parley.processors.speech.spoken_at import SPOKEN_AT, SpokenAt

RATE_HZ = 16_000
PIECE = (8_000 * np.sin(np.arange(RATE_HZ // 10) / 5)).astype("<i2").tobytes()
PIECE_SAMPLES = RATE_HZ // 10


@dataclass
class Bench:
    """The contents that were given, in order."""

    given: list[Content] = field(default_factory=list)
    contents: Contents = field(init=False)

    def __post_init__(self) -> None:
        self.contents = Contents(RATE_HZ, self.given.append)

    def take(self, *frames: Frame, captures: bool = True) -> list[bool]:
        return [self.contents.take(frame, captures=captures) for frame in frames]


def started(context_id: str, *, append: bool = True) -> TTSStartedFrame:
    return TTSStartedFrame(context_id=context_id, append_to_context=append)


def audio(context_id: str, *, rate_hz: int = RATE_HZ) -> TTSAudioRawFrame:
    pcm = PIECE if rate_hz == RATE_HZ else PIECE * (rate_hz // RATE_HZ)
    return TTSAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1, context_id=context_id)


def word(text: str, context_id: str, at_ms: tuple[int, int] | None = None) -> TTSTextFrame:
    frame = TTSTextFrame(text, "word", context_id=context_id)
    if at_ms is not None:
        SPOKEN_AT.put(frame, SpokenAt(at_ms[0] * 1_000, at_ms[1] * 1_000))
    return frame


def announced(text: str, context_id: str | None = None) -> AggregatedTextFrame:
    frame = AggregatedTextFrame(text, "sentence", context_id=context_id)
    frame.will_be_spoken = True
    return frame


def test_the_clauses_of_an_answer_are_one_content() -> None:
    bench = Bench()
    taken = bench.take(
        LLMFullResponseStartFrame(),
        started("a"),
        audio("a"),
        word("Yes,", "a", (0, 90)),
        TTSStoppedFrame("a"),
    )
    assert all(taken)
    [content] = bench.given
    assert not content.is_over and bench.contents.is_waiting
    bench.take(started("b"), audio("b"), word("certainly.", "b", (10, 80)), TTSStoppedFrame("b"))
    bench.take(LLMFullResponseEndFrame())
    assert bench.given == [content] and not content.is_aside
    # The second clause's word counts from the clause's position in the whole.
    assert content.take(PIECE_SAMPLES)[1] == " Yes,"
    assert content.take(PIECE_SAMPLES + 1)[1] == " certainly."
    assert content.is_over and not bench.contents.is_waiting


def test_what_the_model_writes_before_its_voice_is_known() -> None:
    bench = Bench()
    response, text = LLMFullResponseStartFrame(), LLMTextFrame("Yes, ")
    for frame in (response, text):
        bench.contents.thought(frame)
    bench.take(response, started("a"), audio("a"))
    bench.contents.thought(LLMTextFrame("certainly."))
    bench.contents.thought(LLMFullResponseEndFrame())
    bench.contents.thought(LLMTextFrame(" Somebody else's."))
    assert bench.given[0].text == "Yes, certainly."


def test_an_answer_is_not_over_while_a_clause_of_it_is_announced() -> None:
    bench = Bench()
    bench.take(LLMFullResponseStartFrame(), announced("Yes."), LLMFullResponseEndFrame())
    bench.take(started("a"), audio("a"))
    [content] = bench.given
    content.take(PIECE_SAMPLES)
    assert not content.is_over
    bench.take(TTSStoppedFrame("a"))
    assert content.is_over


@pytest.mark.parametrize(("append", "is_aside"), [(True, False), (False, True)])
def test_a_phrase_of_the_bot_is_a_content_of_its_own(append: bool, is_aside: bool) -> None:
    bench = Bench()
    start = started("a", append=append)
    start.interruptible = False
    assert all(bench.take(announced("Hello there.", "a"), start, announced("Hello there.", "a"), audio("a")))
    [content] = bench.given
    assert content.is_aside is is_aside and content.is_protected
    assert all(bench.take(TTSStoppedFrame("a"), LLMAssistantPushAggregationFrame()))
    content.take(PIECE_SAMPLES)
    assert content.is_over


def test_a_filler_in_the_middle_of_an_answer_is_none_of_it() -> None:
    bench = Bench()
    bench.take(LLMFullResponseStartFrame(), started("f", append=False), audio("f"), TTSStoppedFrame("f"))
    bench.take(started("a"), audio("a"), TTSStoppedFrame("a"), LLMFullResponseEndFrame())
    filler, answer = bench.given
    assert filler.is_aside and not answer.is_aside
    for content in (filler, answer):
        assert len(content.take(2 * PIECE_SAMPLES)[0]) == PIECE_SAMPLES and content.is_over


def test_a_word_without_a_place_stands_where_the_audio_does() -> None:
    bench = Bench()
    bench.take(started("a"), audio("a"), word("late", "a"), audio("a"), TTSStoppedFrame("a"))
    content = bench.given[0]
    assert content.take(PIECE_SAMPLES)[1] == ""
    assert content.take(PIECE_SAMPLES)[1] == " late"


def test_a_voice_of_another_rate_is_brought_to_the_engines() -> None:
    bench = Bench()
    bench.take(started("a"), *(audio("a", rate_hz=48_000) for _ in range(10)), TTSStoppedFrame("a"))
    assert len(bench.given[0].take(RATE_HZ * 2)[0]) == pytest.approx(RATE_HZ, abs=RATE_HZ // 50)


def test_what_begins_while_no_one_takes_it_passes_to_its_end() -> None:
    bench = Bench()
    assert bench.take(LLMFullResponseStartFrame(), started("a"), captures=False) == [False, False]
    assert bench.contents.is_passing
    # The engine is on by now; content that has begun passes, content that begins is for the engine.
    assert bench.take(audio("a"), word("Yes.", "a"), started("b"), audio("b")) == [False, False, True, True]
    assert bench.take(TTSStoppedFrame("a"), LLMFullResponseEndFrame()) == [False, False]
    assert not bench.contents.is_passing and len(bench.given) == 1


def test_what_passes_goes_on_when_the_engine_is_given_up() -> None:
    bench = Bench()
    bench.take(started("greeting"), audio("greeting"), captures=False)
    bench.take(started("a"), audio("a"))
    bench.contents.given_up()
    assert not bench.given[0].is_wanted and bench.contents.is_passing
    assert bench.take(audio("greeting"), audio("a")) == [False, True]
    bench.contents.interrupted()
    assert not bench.contents.is_passing


def test_what_is_only_shown_passes() -> None:
    bench = Bench()
    shown = AggregatedTextFrame("| a | table |", "sentence")
    shown.will_be_spoken = False
    assert bench.take(shown) == [False]


def test_an_interruption_takes_back_what_was_made_and_what_comes_late_of_it() -> None:
    bench = Bench()
    bench.take(LLMFullResponseStartFrame(), started("a"), audio("a"))
    bench.contents.thought(InterruptionFrame())
    bench.contents.interrupted()
    [content] = bench.given
    assert not content.is_wanted and not bench.contents.is_waiting
    # Nothing begins again in a context that is void.
    assert all(bench.take(audio("a"), started("a"), audio("a"), TTSStoppedFrame("a")))
    assert all(bench.take(LLMFullResponseEndFrame()))
    assert bench.given == [content]
    bench.take(LLMFullResponseStartFrame(), started("b"), audio("b"))
    assert len(bench.given) == 2 and bench.given[1].is_ready
