"""A call in OpenAI's protocol, in memory: the client's events and their order."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parley.protocols.client_protocol import written
from parley.protocols.openai_realtime import OpenAIRealtime
from tests import virtual_time
from tests.unit.pipelines.test_half_duplex_call import Caller, call
from tests.unit.protocols.test_openai_realtime import message

PIECE = 2_400


def speak(caller: Caller, *, loud: bool) -> None:
    """Send 100 ms of 24 kHz, a tone or silence."""
    tone = 9_000 * np.sin(2 * np.pi * 200 * np.arange(PIECE) / 24_000) if loud else np.zeros(PIECE)
    caller.say(type="input_audio_buffer.append", audio=written(tone.astype("<i2").tobytes()))


@pytest.mark.parametrize("late_ms", [0, 500, 2_500, 5_500])
def test_the_transcript_of_a_turn_has_its_words_however_late_the_recogniser_is(tmp_path: Path, late_ms: int):
    """The turn waits for them: no transcript is empty, and no other turn has the words."""

    async def scenario() -> Caller:
        async with call(tmp_path, protocol=OpenAIRealtime("parley"), late_ms=late_ms) as caller:
            caller.say(type="session.update", session={"type": "realtime"})
            await caller.until("session.updated")
            for number in range(80):
                if caller.of("response.created"):
                    break
                speak(caller, loud=2 <= number < 10)
                await asyncio.sleep(0.1)
        return caller

    caller = virtual_time.run(scenario())
    kinds = [message["type"] for message in caller.received]
    [understood] = caller.of("conversation.item.input_audio_transcription.completed")
    assert understood["transcript"] == "one two three four"
    assert kinds.index("response.created") > len(kinds) - kinds[::-1].index(understood["type"]) - 1


def test_a_filler_takes_neither_the_request_nor_its_words(tmp_path: Path):
    async def scenario() -> Caller:
        slow = (3.2, "The answer is forty two. ")
        async with call(tmp_path, slow, protocol=OpenAIRealtime("parley")) as caller:
            caller.say(type="session.update", session={"type": "realtime"})
            await caller.until("session.updated")
            caller.say(type="conversation.item.create", item=message("what is it?"))
            caller.say(type="response.create", response={"metadata": {"n": "typed"}})
            await asyncio.sleep(8)
        return caller

    caller = virtual_time.run(scenario())
    ends = [each["response"] for each in caller.of("response.done")]
    assert [(end["metadata"], end["output"][0]["content"][0]["transcript"]) for end in ends] == [
        (None, "One moment, please."),
        ({"n": "typed"}, "The answer is forty two."),
    ]


def test_a_committed_recording_has_the_words_of_all_its_phrases(tmp_path: Path):
    async def scenario() -> Caller:
        async with call(tmp_path, protocol=OpenAIRealtime("parley"), late_ms=300) as caller:
            update = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}
            caller.say(type="session.update", session=update)
            await caller.until("session.updated")
            for _ in range(8):
                for number in range(15):
                    speak(caller, loud=number < 6)
            caller.say(type="input_audio_buffer.commit")
            await caller.until("response.done")
        return caller

    caller = virtual_time.run(scenario())
    [understood] = caller.of("conversation.item.input_audio_transcription.completed")
    assert understood["transcript"] == " ".join(["one two three"] * 8)
