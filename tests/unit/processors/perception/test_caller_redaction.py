"""The stage that redacts the caller's words, in a pipeline of Pipecat."""

import asyncio
from typing import Any

from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    Frame,
    InputDTMFFrame,
    InterimTranscriptionFrame,
    LLMMessagesAppendFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.tests.utils import run_test

from parley.core.call_events import SpeechHeld, SpeechSettled, UtteranceRead
from parley.core.media import WordTime
from parley.core.privacy import PrivacySettings
from parley.language import find_language
from parley.language.personal_data import Redactor
from parley.language.turn_redaction import TurnRedaction
from parley.models.stt import Transcript
from parley.processors.perception.caller_redaction import CallerRedaction
from parley.processors.perception.engine_stt import BEGAN_S
from parley.processors.perception.private_words import PrivateWords
from parley.runtime.event_stream import CallEvents

CARD = " ".join(["four two four two"] * 4)


class OneCaller:
    """Stage of one caller, with the events that it publishes."""

    def __init__(self, *, model_hears: bool = False) -> None:
        self.events, self.private = CallEvents(), PrivateWords(model_hears=model_hears)
        redactor = Redactor(PrivacySettings(redact=("payment_card",)), find_language("en").personal)
        self.stage = CallerRedaction(TurnRedaction(redactor), self.private, self.events)
        self.seen: list[Any] = []
        for kind in (SpeechHeld, SpeechSettled):
            self.events.subscribe(kind, self.seen.append)

    async def push(self, *frames: Frame) -> list[Frame]:
        """Push frames through the stage and return what comes out."""
        down, _ = await run_test(self.stage, frames_to_send=list(frames))
        return list(down)


def final(text: str, *, words: bool = True) -> TranscriptionFrame:
    times = tuple(WordTime(word, 100 * at, 100 * at + 90, 0.9) for at, word in enumerate(text.split()))
    frame = TranscriptionFrame(
        text, "", "now", result=Transcript(text, times if words else ()), finalized=True
    )
    BEGAN_S.put(frame, asyncio.get_running_loop().time())
    return frame


async def test_transcripts_leave_the_stage_without_the_card_and_with_their_facts():
    caller = OneCaller()
    came = await caller.push(
        InterimTranscriptionFrame(f"my card is {CARD[:40]}", "", "now"), final(f"my card is {CARD} thanks")
    )
    partial, whole = (
        each for each in came if isinstance(each, InterimTranscriptionFrame | TranscriptionFrame)
    )
    assert partial.text == "my card is [number]"
    assert whole.text == "my card is [card] thanks"
    assert [word.text for word in whole.result.words] == whole.text.split()
    assert BEGAN_S.of(whole) is not None and whole.finalized


async def test_typed_words_are_redacted_as_a_whole():
    message = {"role": "user", "content": "charge 4242 4242 4242 4242"}
    own = {"role": "developer", "content": "4242 4242 4242 4242"}
    came = await OneCaller().push(LLMMessagesAppendFrame([message, own], run_llm=True))
    (typed,) = (each for each in came if isinstance(each, LLMMessagesAppendFrame))
    assert typed.messages == [{"role": "user", "content": "charge [card]"}, own]
    assert typed.run_llm


async def test_audio_is_held_from_before_the_voice_and_settled_with_the_stretch_of_the_card():
    caller = OneCaller()
    shown: list[str] = []

    class Ending(CallerRedaction):
        """Ends the turn when the voice has ended, as an aggregator does."""

        async def push_frame(self, frame: Frame, *arguments: Any) -> None:
            await super().push_frame(frame, *arguments)
            if isinstance(frame, TranscriptionFrame):
                shown.append(self.words_of_turn(frame.text))

    redactor = Redactor(PrivacySettings(redact=("payment_card",)), find_language("en").personal)
    caller.stage = Ending(TurnRedaction(redactor), caller.private, caller.events)
    await caller.push(
        VADUserStartedSpeakingFrame(start_secs=0.2),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
        final(f"my card is {CARD} thanks"),
    )
    assert shown == ["my card is [card] thanks"]
    held, settled = caller.seen
    assert held.since_ms <= held.at_ms - 1_000
    ((start_ms, end_ms),) = settled.redacted
    assert held.since_ms < start_ms < end_ms
    assert end_ms - start_ms == 100 * 15 + 90 + 500


async def test_a_voice_whose_words_never_came_is_redacted_at_the_end_of_the_call():
    caller = OneCaller()
    await caller.push(VADUserStartedSpeakingFrame(start_secs=0.2))
    held, settled = caller.seen
    ((start_ms, end_ms),) = settled.redacted
    assert start_ms == held.since_ms and end_ms >= held.at_ms


async def test_in_a_pause_words_are_marks_which_the_model_alone_may_read():
    caller = OneCaller(model_hears=True)
    caller.private.begin()
    came = await caller.push(final("the code is nine"), final("and a half"))
    texts = [each.text for each in came if isinstance(each, TranscriptionFrame)]
    assert texts == ["[private-1]", "[private-2]"]
    assert caller.private.hide("more", is_final=False) == "[private-3]"
    read = UtteranceRead(9, "x", 5, 5, 1, ((1, "the"),), "the code", (WordTime("the", 0, 1),), 1.0, None)
    kept = caller.stage.utterance(read)
    assert (kept.text, kept.words, kept.partials) == ("[private-3]", (), ())


async def test_record_of_an_utterance_has_the_words_as_they_are_shown():
    caller = OneCaller()
    partials = tuple((at, f"my card is {CARD[: at * 10]}") for at in range(1, 8))
    read = UtteranceRead(9, "x", 5, 5, 1, partials, f"my card is {CARD}", (), 1.0, None)
    kept = caller.stage.utterance(read)
    assert kept.text == "my card is [card]"
    assert all(text.count("four") <= 2 for _, text in kept.partials)


async def test_tones_of_keys_that_are_hidden_are_a_stretch():
    caller = OneCaller()
    keys = [InputDTMFFrame(button=KeypadEntry(key)) for key in "4242424242424242"]
    message = {"role": "user", "content": f"I pressed {' '.join('4242424242424242')} on my phone."}
    came = await caller.push(*keys, LLMMessagesAppendFrame([message], run_llm=True))
    (typed,) = (each for each in came if isinstance(each, LLMMessagesAppendFrame))
    assert typed.messages[0]["content"] == "I pressed [card] on my phone."
    held, settled = caller.seen
    ((start_ms, end_ms),) = settled.redacted
    assert start_ms == held.since_ms and end_ms > held.at_ms
