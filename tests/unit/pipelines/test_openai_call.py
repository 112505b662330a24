"""A call in OpenAI's protocol, in memory: the client's events and their order."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parley.protocols.client_protocol import written
from parley.protocols.openai_realtime import OpenAIRealtime
from tests import virtual_time
from tests.unit.pipelines.test_half_duplex_call import Caller, call

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
