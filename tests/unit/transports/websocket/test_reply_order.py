"""Replies that follow each other are reported one after the other, each with its own words."""

import random

import pytest
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame

from parley.protocols.client_protocol import Happening, ReplyAudio, ReplyBegan, ReplyOver, ReplyWords
from parley.transports.websocket.reply_order import ReplyOrder
from tests.unit.transports.websocket.timed_client import RATE_HZ, TimedClient, client_after

DELTA = "response.output_audio_transcript.delta"


def words(text: str, context_id: str) -> TTSTextFrame:
    frame = TTSTextFrame(text, "word")
    frame.context_id = context_id
    return frame


def reply(context_id: str, ms: int) -> list[Frame]:
    """Return a reply of this length, without its words."""
    audio = TTSAudioRawFrame(bytes(RATE_HZ * ms // 1000 * 2), RATE_HZ, 1, context_id=context_id)
    return [TTSStartedFrame(context_id=context_id), audio, TTSStoppedFrame(context_id=context_id)]


def client(*frames: object) -> TimedClient:
    return client_after(*frames, audio_out_10ms_chunks=4, audio_out_end_silence_secs=0)


def responses(of: TimedClient) -> list[tuple[str, str]]:
    """Return status and words of each response, in the order of their ends."""
    ends = [each["response"] for each in of.received if each["type"] == "response.done"]
    return [(end["status"], end["output"][0]["content"][0]["transcript"]) for end in ends]


def test_the_last_words_of_a_reply_are_its_own_when_the_next_one_is_sent_ahead():
    sent = [*reply("a", 1_000), words("one", "a"), *reply("b", 400), SleepFrame(0.8), words("two", "a")]
    read = client(*sent, words("three", "b"), SleepFrame(2))
    assert responses(read) == [("completed", "one two"), ("completed", "three")]
    # The second begins when the first has been played, with all of its audio that may be ahead.
    first_s, second_s = [at_s for at_s, kind in read.read if kind == "response.created"]
    assert second_s - first_s == pytest.approx(1.0, abs=0.05)
    deltas = [at_s for at_s, kind in read.read if kind == "response.output_audio.delta"]
    assert len([at_s for at_s in deltas if at_s == second_s]) == 10


def test_a_reply_that_is_cut_off_is_cancelled_and_one_that_has_not_begun_is_not_reported():
    sent = [*reply("a", 1_000), words("one", "a"), *reply("b", 400), SleepFrame(0.4)]
    read = client(*sent, UserStartedSpeakingFrame(), InterruptionFrame(), words("two", "b"), SleepFrame(2))
    assert responses(read) == [("cancelled", "one")]


def test_no_reply_begins_between_the_callers_turn_and_the_interruption_by_it():
    sent = [*reply("a", 1_000), *reply("b", 1_000), SleepFrame(0.9), UserStartedSpeakingFrame()]
    read = client(*sent, SleepFrame(0.3), InterruptionFrame(), SleepFrame(2))
    kinds = [kind for _, kind in read.read]
    started = kinds.index("input_audio_buffer.speech_started")
    assert not {"response.created", "response.output_audio.delta"} & set(kinds[started:])


def test_a_reply_that_begins_anew_after_other_speech_ends_once_more():
    sent = [*reply("a", 400), *reply("b", 400), *reply("a", 400), SleepFrame(2)]
    assert [status for status, _ in responses(client(*sent))] == ["completed"] * 3


@pytest.mark.parametrize("seed", range(20))
def test_whatever_comes_each_reply_has_a_begin_its_events_and_an_end(seed: int):
    dice, reported, held = random.Random(seed), list[Happening](), False
    order = ReplyOrder(reported.append, lambda: held)
    numbers = [0]
    for _ in range(200):
        held = dice.random() < 0.2
        step = dice.randrange(5)
        if step == 0:
            numbers.append(order.begin(ReplyBegan(f"r{len(numbers)}")))
        elif step == 1:
            order.end(dice.choice(numbers))
        elif step == 2:
            order.go_on()
        else:
            of = f"r{dice.randrange(len(numbers) + 1)}"
            order.add(of, ReplyWords(of) if step == 3 else ReplyAudio(of.encode(), 20.0))
    held = False
    order.end(numbers[-1])
    present = ""
    for each in reported:
        match each:
            case ReplyBegan(reply_id):
                assert not present
                present = reply_id
            case ReplyOver(reply_id):
                assert reply_id == present
                present = ""
            case ReplyWords(of):
                assert of == present
            case ReplyAudio(data):
                assert data.decode() == present
    assert not present
    begun = [each.reply_id for each in reported if isinstance(each, ReplyBegan)]
    assert begun == [f"r{number}" for number in numbers[1:]]
