"""Words of a full-duplex call on their way to the engine."""

import asyncio

import pytest
from pipecat.frames.frames import InterimTranscriptionFrame, TranscriptionFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection

from parley.core.call_events import SpeechReported
from parley.core.media import WordTime
from parley.core.speech_reports import SpeechReport, TranscriptWords
from parley.models.stt import Transcript
from parley.processors.duplex.turns import DuplexTurnTracker
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.duplex_policy import DuplexPolicy

PAY = Transcript(
    "twenty five dollars", (WordTime("twenty five", 0, 400, 0.9), WordTime("dollars", 400, 800, 0.7)), 0.8
)


def heard(frame: TranscriptionFrame | InterimTranscriptionFrame) -> TranscriptWords:
    received: list[SpeechReport] = []

    async def scenario() -> None:
        events = CallEvents()
        events.subscribe(SpeechReported, lambda event: received.append(event.report))
        tracker = DuplexTurnTracker(LLMContext(), events, speak=lambda frame: asyncio.sleep(0))
        await tracker.process_frame(frame, FrameDirection.DOWNSTREAM)

    asyncio.run(scenario())
    [words] = received
    assert isinstance(words, TranscriptWords)
    return words


@pytest.mark.parametrize("kind", [TranscriptionFrame, InterimTranscriptionFrame])
def test_a_word_that_was_written_with_a_hyphen_has_its_confidence_twice(
    kind: type[TranscriptionFrame | InterimTranscriptionFrame],
) -> None:
    words = heard(kind(PAY.text, "", "", result=PAY))
    assert words.confidences == (0.9, 0.9, 0.7)
    # The policy takes as many as there are words.
    DuplexPolicy().on_final(1_000, words.text, confidences=words.confidences)


def test_words_that_were_redacted_have_one_confidence() -> None:
    assert heard(TranscriptionFrame("[number] dollars", "", "", result=PAY)).confidences == (0.8,)


def test_a_partial_without_words_has_no_confidence() -> None:
    frame = InterimTranscriptionFrame("twenty five", "", "", result=Transcript("twenty five"))
    assert heard(frame).confidences == ()
