"""A call in OpenAI's protocol, in memory: the client's events and their order."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parley.core.call_choices import VoiceNames
from parley.core.errors import PeerError
from parley.pipelines.sockets.answer_state import TurnAnswers
from parley.protocols.client_protocol import SessionUpdate, written
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.runtime.event_stream import CallEvents
from parley.session_store.events import Kind
from tests import virtual_time
from tests.fakes.omni import OmniScript, ScriptedOmniHost
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


async def spoken(caller: Caller, *, until: str) -> None:
    """Say something, and be silent until an event comes."""
    for number in range(80):
        if caller.of(until):
            return
        speak(caller, loud=2 <= number < 10)
        await asyncio.sleep(0.1)


def test_turns_that_are_not_answered_on_their_own_are_answered_on_request(tmp_path: Path):
    heard = "conversation.item.input_audio_transcription.completed"

    async def scenario() -> Caller:
        async with call(tmp_path, protocol=OpenAIRealtime("parley")) as caller:
            detection = {"type": "server_vad", "create_response": False}
            update = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
            caller.say(type="session.update", session=update)
            await caller.until("session.updated")
            await spoken(caller, until=heard)
            await asyncio.sleep(5)
            assert not caller.of("response.created")
            caller.say(type="response.create", response={"metadata": {"n": "1"}})
            await caller.until("response.done")
            # Once: the next turn waits for its own request.
            for number in range(40):
                speak(caller, loud=2 <= number < 10)
                await asyncio.sleep(0.1)
            await asyncio.sleep(5)
        return caller

    caller = virtual_time.run(scenario())
    [updated] = caller.of("session.updated")
    assert updated["session"]["audio"]["input"]["turn_detection"]["create_response"] is False
    assert [each["transcript"] for each in caller.of(heard)] == ["one two three four"] * 2
    [done] = caller.of("response.done")
    assert (done["response"]["status"], done["response"]["metadata"]) == ("completed", {"n": "1"})
    assert done["response"]["output"][0]["content"][0]["transcript"]


def test_a_request_before_the_first_turn_is_not_for_that_turn(tmp_path: Path):
    heard = "conversation.item.input_audio_transcription.completed"

    async def scenario() -> Caller:
        async with call(tmp_path, protocol=OpenAIRealtime("parley"), earlier="what is it?") as caller:
            detection = {"type": "server_vad", "create_response": False}
            update = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
            caller.say(type="session.update", session=update)
            await caller.until("session.updated")
            caller.say(type="response.create")
            await caller.until("response.done")
            await spoken(caller, until=heard)
            await asyncio.sleep(5)
        return caller

    caller = virtual_time.run(scenario())
    assert [each["transcript"] for each in caller.of(heard)] == ["one two three four"]
    assert len(caller.of("response.created")) == 1


def test_an_answer_on_request_is_asked_again_where_a_noise_cut_it():
    """The model is asked again without a new turn; a later turn with the same words is another one."""
    answers = TurnAnswers(lambda: SessionUpdate(answers=False), CallEvents())
    assert answers("what is it?", is_again=False) == ""
    answers.request()
    assert answers("what is it?", is_again=True) is None
    assert answers("what is it?", is_again=True) is None
    assert answers("what is it?", is_again=False) == ""
    assert answers("what is it?", is_again=True) == ""


@pytest.mark.parametrize("is_declared", [True, False], ids=["by an update", "by its address"])
def test_a_transcription_session_has_the_words_and_no_responses(tmp_path: Path, is_declared: bool):
    heard = "conversation.item.input_audio_transcription.completed"

    async def scenario() -> Caller:
        protocol = OpenAIRealtime("parley", is_transcription=not is_declared)
        async with call(tmp_path, protocol=protocol) as caller:
            if is_declared:
                transcription = {"model": "parley", "language": "en"}
                session = {"type": "transcription", "audio": {"input": {"transcription": transcription}}}
                caller.say(type="session.update", session=session)
                await caller.until("session.updated")
            await spoken(caller, until=heard)
            caller.say(type="response.create")
            caller.say(type="conversation.item.create", item=message("what is it?"))
            await asyncio.sleep(8)
        return caller

    caller = virtual_time.run(scenario())
    [begun] = caller.of("session.updated" if is_declared else "session.created")
    assert begun["session"]["type"] == "transcription"
    assert [each["transcript"] for each in caller.of(heard)] == ["one two three four"]
    assert caller.of("input_audio_buffer.committed") and not caller.of("response.created")
    assert [each["error"]["code"] for each in caller.of("error")] == ["not_supported"] * 2


def test_a_client_that_is_eager_waits_less_for_the_end_of_a_turn(tmp_path: Path):
    def wait_ms(folder: Path, eagerness: str) -> int:
        folder.mkdir()

        async def scenario() -> Caller:
            async with call(folder, protocol=OpenAIRealtime("parley")) as caller:
                detection = {"type": "semantic_vad", "eagerness": eagerness}
                update = {"type": "realtime", "audio": {"input": {"turn_detection": detection}}}
                caller.say(type="session.update", session=update)
                await caller.until("session.updated")
                await spoken(caller, until="input_audio_buffer.committed")
                later = {**detection, "eagerness": "auto"}
                update = {"type": "realtime", "audio": {"input": {"turn_detection": later}}}
                caller.say(type="session.update", session=update)
                await asyncio.sleep(1)
            return caller

        caller = virtual_time.run(scenario())
        [refused] = caller.of("error")
        assert refused["error"]["param"] == "session.audio.input.turn_detection.eagerness"
        [ended] = [each for each in caller.events if each.kind is Kind.USER_TURN]
        return ended.arrival_us

    high, low = (wait_ms(tmp_path / name, name) for name in ("high", "low"))
    assert high < low


@pytest.mark.parametrize("is_there", [True, False])
def test_an_engine_imitates_the_reference_voice_that_a_client_names(tmp_path: Path, is_there: bool):
    tone = np.full(1_600, 0.1, np.float32)
    host, protocol = ScriptedOmniHost(OmniScript()), OpenAIRealtime("parley")
    protocol.permit(instructions=True, voices=VoiceNames(clones=True, references=("anna",)))
    asked: list[str] = []

    async def imitated(voice_id: str) -> np.ndarray:
        asked.append(voice_id)
        if not is_there:
            raise PeerError("reference_voice: there is no voice 'anna'")
        return tone

    async def scenario() -> Caller:
        async with call(tmp_path, protocol=protocol, omni=[host], imitated=imitated) as caller:
            voice = {"type": "realtime", "audio": {"output": {"voice": {"id": "anna"}}}}
            caller.say(type="session.update", session=voice)
            await caller.until("session.updated")
            # The conversation begins without another event of the client.
            await asyncio.sleep(3)
            caller.say(type="session.update", session=voice)
            caller.say(type="session.update", session={"audio": {"output": {"voice": "parley"}}})
            await asyncio.sleep(1)
        return caller

    caller = virtual_time.run(scenario())
    assert asked == ["anna"]
    shown = [each["session"]["audio"]["output"]["voice"] for each in caller.of("session.updated")]
    # Where it was removed since it was listed, the engine's own voice speaks, and may be shown.
    assert shown == [{"id": "anna"}, {"id": "anna"}, *([] if is_there else ["parley"])]
    [preparation] = host.engines[0].prepared
    assert (preparation.tts_ref_audio is tone) == (preparation.llm_ref_audio is tone) == is_there
    refused = [each["error"]["code"] for each in caller.of("error")]
    assert refused == ["cannot_update_voice" if is_there else "invalid_value"]
    [joined] = [event.payload for event in caller.events if event.kind is Kind.JOINED]
    assert joined.get("choices") == ({"reference_voice": "anna"} if is_there else None)
