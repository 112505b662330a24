"""OpenAI's realtime protocol by its official client, against the server as a user starts it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import websockets
from openai import AsyncOpenAI, OpenAIError

from parley.audio import g711
from parley.models.tts.flite import FliteSettings, FliteTts
from tests.human_speech import opening
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.realtime_caller import PCM_HZ, RealtimeCaller, at_rate, calling
from tests.peers.server import RunningServer, running_server
from tests.peers.test_tools import CallingOpenAi, Calls
from tests.voices import bot_says, say

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIPELINES = ["parley-cascade", "parley-duplex"]
# For what depends little on how it is answered.
MAINLY_CASCADE = ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)]
QUESTION = "What are your opening hours?"
# Nine seconds of speech.
LONG = (
    "We open at nine. ",
    "We close at six in the evening. ",
    "On Saturday we open at ten, and we close at two. ",
    "On Sunday we are closed all day long.",
)
LONG_WORDS = "".join(LONG).split()


# Two voices of men: the deployment's own, and one that a client may choose.
VOICES = "speaking: {voices: {rms: {name: flite, settings: {voice: rms}}}, voice_aliases: {ash: rms}}\n"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
PARIS = Calls(calls=[("weather", '{"city": "Paris"}')])


class Weather(CallingOpenAi):
    """Model that calls a client's tool for questions about hours, and reports the result.

    Its reply depends on the last message of the request only, so tests may run in any order.
    """

    def __init__(
        self, turns: Sequence[Turn], *, after_tool: Sequence[str] = (), unstreamed: Sequence[Turn] = ()
    ) -> None:
        super().__init__(turns, unstreamed=unstreamed)
        self.after_tool = after_tool

    async def stream(self, response: Any, turn: Turn) -> None:
        last = self.requests[-1]["messages"][-1]
        await super().stream(response, self.answer(last["role"], str(last.get("content", ""))))

    def answer(self, role: str, text: str) -> Turn:
        if role == "tool":
            return Turn((f"They say: {text}. ", *self.after_tool))
        return PARIS if "hours" in text and self.requests[-1].get("tools") else Turn(LONG)


class Asked(Weather):
    """Model that also answers about a price, and about names that were mentioned before."""

    def answer(self, role: str, text: str) -> Turn:
        if "price" in text.lower():
            return Turn(("It costs ", "five euros."))
        if "name" in text.lower():
            return Turn(("You told me ", "before."))
        return super().answer(role, text)


@asynccontextmanager
async def serving(
    llm: OpenAiServer, folder: Path, more: str = "", *, log: Path | None = None
) -> AsyncIterator[RunningServer]:
    """Run the server with a language model of its own."""
    settings = f'{{base_url: "{llm.url}/v1", model: m}}'
    (folder / "own.yaml").write_text(
        f"thinking: {{llm: {{name: openai_compatible, settings: {settings}}}}}\n"
        f"server: {{clients: {{anonymous: {{instructions: true, client_tools: true}}}}}}\n{more}"
    )
    async with running_server("--config", str(folder / "own.yaml"), log=log) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[Asked]:
    async with Asked([Turn(LONG)]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(llm: Asked, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with serving(llm, tmp_path_factory.mktemp("own"), VOICES) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forecaster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """For conversations with a tool that other clients hold: what it says of the weather is interrupted."""
    async with (
        Weather([Turn(LONG)], after_tool=LONG) as llm,
        serving(llm, tmp_path_factory.mktemp("weather")) as server,
    ):
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """A server of one line, which permits clients nothing."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.yaml").write_text("server: {max_calls: 1}\n")
    async with running_server("--config", str(folder / "small.yaml")) as server:
        yield server


def session_of(caller: RealtimeCaller) -> str:
    return caller.of("session.created")[0].session.id


async def events_of(server: RunningServer, session_id: str, *, until: str) -> list[dict[str, Any]]:
    """Return the events of a session from the store, live, up to the first event of a kind."""
    events: list[dict[str, Any]] = []
    url = f"{server.url}/api/sessions/{session_id}/events"
    async with asyncio.timeout(60), httpx.AsyncClient(timeout=60) as client:
        async with client.stream("GET", url, params={"after_seq": 0}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    events.append(event)
                    if event.get("kind") == until:
                        return events
    return events


def bot_turns(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the bot's turns that hold, without those that a later one has corrected."""
    corrected = {key for event in events for key in event["payload"].get("supersedes", ())}
    return [
        event["payload"]
        for event in events
        if event["kind"] == "bot_turn" and event.get("key") not in corrected
    ]


def loud(pcm: bytes) -> bool:
    return float(np.abs(np.frombuffer(pcm, "<i2").astype(np.float32)).max()) > 3_000


def errors(caller: RealtimeCaller) -> list[Any]:
    return [event.error for event in caller.of("error")]


# Speech


@pytest.mark.parametrize("model", PIPELINES)
async def test_a_question_is_answered_in_voice_and_text(server: RunningServer, model: str):
    async with calling(server.url, model=model) as caller:
        caller.say("What is the price?", behind_ms=200)
        done = (await caller.until("response.done")).response
        assert (done.status, errors(caller)) == ("completed", [])
        assert caller.said() == "It costs five euros."
        assert caller.understood() == ["what is the price"]
        [item_id] = caller.speaker.audio
        assert loud(caller.speaker.audio[item_id])
        assert (done.usage.input_tokens, done.usage.output_tokens, done.usage.total_tokens) == (12, 2, 14)
        # Only the reply is played: its words take no longer than its audio, which ends in a little silence.
        assert 1_000 < caller.speaker.length_ms[item_id] < 4_000
        assert done.output[0].content[0].transcript == caller.said()
        caller.order.over()
    answer = bot_turns(await events_of(server, session_of(caller), until="left"))
    assert [turn["text"] for turn in answer] == ["It costs five euros."]


def voiced(name: str) -> dict[str, Any]:
    return {"type": "realtime", "audio": {"output": {"voice": name}}}


def likeness(pcm: bytes, spoken: bytes) -> float:
    """Return how like the loudest match of two sounds of ``PCM_HZ`` is, 0 to 1."""
    heard, wanted = (np.frombuffer(each, "<i2").astype(np.float64) for each in (pcm, spoken))
    size = 1 << int(np.ceil(np.log2(len(heard) + len(wanted))))
    matches = np.fft.irfft(np.fft.rfft(heard, size) * np.conj(np.fft.rfft(wanted, size)), size)
    return float(np.abs(matches).max() / (np.linalg.norm(heard) * np.linalg.norm(wanted)))


def said_by(voice: str, text: str) -> bytes:
    pieces: list[bytes] = []
    FliteTts(FliteSettings(voice=voice)).synthesize(text, lambda piece: pieces.append(piece.pcm) is None)
    return at_rate(b"".join(pieces), PCM_HZ)


@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_a_voice_of_the_deployment_speaks_when_a_client_chooses_it_before_the_first_sound(
    server: RunningServer, model: str
):
    async with calling(server.url, model=model, microphone=False) as caller:
        # The conversation has begun, and nothing was said.
        await typed(caller, "What is the price?")
        for name in ("henry", "marin", "ash"):
            await caller.connection.session.update(session=voiced(name))
        await caller.until("session.updated", count=2)
        shown = [each.session.audio.output.voice for each in caller.of("session.updated")]
        assert shown == ["parley", "rms"]
        [unknown] = errors(caller)
        assert (unknown.code, unknown.param) == ("invalid_value", "session.audio.output.voice")
        await caller.connection.response.create()
        done = (await caller.until("response.done")).response
        assert done.audio.output.voice == "rms"
        [audio] = caller.speaker.audio.values()
        # Full duplex makes it at another rate: 0.76, where a cascade has more.
        own = at_rate(bot_says("It costs five euros."), PCM_HZ)
        assert likeness(audio, said_by("rms", "It costs five euros.")) > 0.7 > 2 * likeness(audio, own)
        await caller.connection.session.update(session=voiced("parley"))
        await caller.until_true(lambda: len(errors(caller)) == 2)
        assert errors(caller)[-1].code == "cannot_update_voice"
    # Chosen before the conversation, it is in the record of the call.
    async with calling(server.url, microphone=False, audio={"output": {"voice": "rms"}}) as caller:
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done")
    events = await events_of(server, session_of(caller), until="left")
    [joined] = [event["payload"] for event in events if event["kind"] == "joined"]
    assert joined["choices"] == {"voice": "rms"}


# The words of a sentence with a comma come late next to two other servers: it may be taken for two then.
@pytest.mark.paired
@pytest.mark.parametrize("model", PIPELINES)
async def test_who_speaks_over_the_answer_cuts_it_off_and_the_session_has_what_the_client_played(
    server: RunningServer, model: str
):
    async with calling(server.url, model=model) as caller:
        caller.say(QUESTION, behind_ms=200)
        started = await caller.until("response.output_audio.delta")
        await caller.until_true(
            lambda: bool(caller.speaker.length_ms) and caller.speaker.played_ms(started.item_id) > 2_500
        )
        caller.say("Stop, please tell me the price.")
        cut = (await caller.until("response.done")).response
        assert (cut.status, cut.status_details.reason) == ("cancelled", "turn_detected")
        truncated = await caller.until("conversation.item.truncated")
        # It is the first event of the interruption, so that a client falls silent at once.
        types = [event.type for event in caller.events]
        second = len(types) - 1 - types[::-1].index("input_audio_buffer.speech_started")
        assert second < types.index("response.done")
        assert types.index("response.done") - second < 10
        played_ms = caller.speaker.stopped_ms[started.item_id]
        assert (truncated.item_id, truncated.audio_end_ms) == (started.item_id, played_ms)
        answer = await caller.until("response.done", count=2)
        assert answer.response.status == "completed"
        assert caller.said() == "It costs five euros."
        assert errors(caller) == []
    turns = bot_turns(await events_of(server, session_of(caller), until="left"))
    [first] = [turn for turn in turns if turn["text"].startswith("We")]
    assert (first["source"], first["truncated"]) == ("client_report", True)
    assert abs(first["audio_ms"] - played_ms) <= 1
    heard = first["text"].split()
    assert heard == LONG_WORDS[: len(heard)]
    assert f"{first['text']} {first['unheard']}".split() == LONG_WORDS
    # Three and a half words a second, with a tolerance of one word.
    assert abs(len(heard) - played_ms / 1000 * len(LONG_WORDS) / 9) < 4


async def test_a_client_that_played_less_than_the_server_knew_has_the_last_word(server: RunningServer):
    async with calling(server.url) as caller:
        caller.truncates = False
        caller.say(QUESTION, behind_ms=200)
        started = await caller.until("response.output_audio.delta")
        await caller.until_true(lambda: caller.speaker.played_ms(started.item_id) > 4_000)
        caller.say("Stop, please tell me the price.")
        await caller.until("response.done", count=2)
        await caller.connection.conversation.item.truncate(
            item_id=started.item_id, content_index=0, audio_end_ms=700
        )
        await caller.until("conversation.item.truncated")
        await caller.connection.conversation.item.retrieve(item_id=started.item_id)
        retrieved = (await caller.until("conversation.item.retrieved")).item
    turns = bot_turns(await events_of(server, session_of(caller), until="left"))
    [first] = [turn for turn in turns if turn["text"].startswith("We")]
    assert (first["source"], first["audio_ms"]) == ("client_report", 700)
    assert first["text"].split() == LONG_WORDS[: len(first["text"].split())]
    assert 1 <= len(first["text"].split()) <= 3
    # The client reads the words that the session keeps.
    assert retrieved.content[0].transcript == first["text"]


@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_where_speech_began_and_ended_is_told_in_milliseconds_of_what_was_sent(
    server: RunningServer, model: str
):
    async with calling(server.url, model=model) as caller:
        voice = at_rate(say("What is the price?"), PCM_HZ)
        await asyncio.sleep(0.5)
        caller.say("What is the price?")
        behind_ms = caller.appended_ms
        await caller.until("response.done")
        started = caller.of("input_audio_buffer.speech_started")[0]
        stopped = caller.of("input_audio_buffer.speech_stopped")[0]
        audible = np.flatnonzero(np.abs(np.frombuffer(voice, "<i2").astype(np.int32)) > 500) * 1000 / PCM_HZ
        assert abs(started.audio_start_ms - (behind_ms + audible[0])) < 250
        assert abs(stopped.audio_end_ms - (behind_ms + audible[-1])) < 250
        usage = caller.of("conversation.item.input_audio_transcription.completed")[0].usage
        assert usage.seconds == (stopped.audio_end_ms - started.audio_start_ms) / 1000


async def test_typed_words_are_answered_when_the_client_asks(server: RunningServer):
    async with calling(server.url, microphone=False) as caller:
        await typed(caller, "What is the price?")
        await caller.until("conversation.item.done")
        await asyncio.sleep(0.5)
        assert caller.of("response.created") == []
        await caller.connection.response.create()
        await caller.until("response.done")
        assert caller.said() == "It costs five euros."
        caller.order.over()
    events = await events_of(server, session_of(caller), until="left")
    assert [e["payload"]["text"] for e in events if e["kind"] == "user_turn"] == ["What is the price?"]


async def typed(caller: RealtimeCaller, text: str, role: str = "user") -> None:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": text}]
    await caller.connection.conversation.item.create(
        item={"type": "message", "role": role, "content": content}
    )


@pytest.mark.parametrize("model", PIPELINES)
@pytest.mark.paired
async def test_typed_words_end_what_is_being_said(server: RunningServer, model: str):
    async with calling(server.url, model=model) as caller:
        caller.say(QUESTION, behind_ms=200)
        await caller.until("response.output_audio.delta", count=40)
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done", count=2)
        statuses = [event.response.status for event in caller.of("response.done")]
        assert (statuses, errors(caller)) == (["cancelled", "completed"], [])
        assert caller.said() == "It costs five euros."
        caller.order.over()


async def press_and_speak(caller: RealtimeCaller, text: str) -> None:
    """Push to talk: switch the microphone on for as long as the words take."""
    pcm = at_rate(say(text), PCM_HZ)
    for start in range(0, len(pcm), 4_800):
        await caller.connection.input_audio_buffer.append(audio=caller.encoded(pcm[start : start + 4_800]))
        await asyncio.sleep(0.1)


@pytest.mark.paired
@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_push_to_talk(server: RunningServer, model: str):
    off = {"input": {"turn_detection": None}}
    async with calling(server.url, model=model, microphone=False, audio=off) as caller:
        for number in (1, 2):
            await press_and_speak(caller, "What is the price?")
            await caller.connection.input_audio_buffer.commit()
            await caller.connection.response.create()
            await caller.until("response.done", count=number)
        assert caller.understood() == ["what is the price"] * 2
        assert len(caller.of("response.done")) == 2
        assert caller.said() == "It costs five euros."
        assert caller.of("input_audio_buffer.speech_started") == []
        assert errors(caller) == []
        caller.order.over()


@pytest.mark.paired
async def test_push_to_talk_of_a_cascade_is_answered_without_hearing_it_again_at_its_own_pace(
    server: RunningServer,
):
    off = {"input": {"turn_detection": None}}
    async with calling(server.url, microphone=False, audio=off) as caller:
        await press_and_speak(caller, "Please tell me, what is the price, and nothing else at all?")
        await caller.connection.input_audio_buffer.commit()
        # The words take four seconds.
        await caller.until("response.created", within_s=3.5)


async def test_a_turn_without_a_voice_is_over_and_has_no_answer(server: RunningServer):
    off = {"input": {"turn_detection": None}}
    async with calling(server.url, microphone=False, audio=off) as caller:
        await caller.connection.input_audio_buffer.append(audio=caller.encoded(bytes(PCM_HZ)))
        await caller.connection.input_audio_buffer.commit()
        await caller.connection.response.create()
        done = await caller.until("response.done")
        assert (done.response.status, done.response.output) == ("completed", [])
        assert caller.understood() == [""]
        await press_and_speak(caller, "What is the price?")
        await caller.connection.input_audio_buffer.commit()
        await caller.until("response.done", count=2)
        assert caller.said() == "It costs five euros."


@pytest.mark.parametrize("law", list(g711.Law))
async def test_a_telephone_line(server: RunningServer, law: g711.Law):
    async with calling(server.url, law=law) as caller:
        # A recorded person: at telephone quality the recogniser mistakes some words of the synthetic voice.
        caller.play(opening())
        await caller.until("response.output_audio.delta", count=30)
        assert caller.understood()[0].startswith("it was the best of times")
        data = next(iter(caller.speaker.audio.values()))
        samples = g711.decode(data, law).astype(np.float32)
        assert np.abs(samples).max() > 3_000
        assert caller.of("session.updated")[0].session.audio.output.format.type.startswith("audio/pcm")


async def test_who_reads_is_sent_text_and_no_audio(server: RunningServer):
    async with calling(server.url, output_modalities=["text"]) as caller:
        caller.say("What is the price?", behind_ms=200)
        done = await caller.until("response.done")
        assert caller.of("response.output_text.done")[0].text == "It costs five euros."
        assert caller.of("response.output_audio.delta") == []
        assert done.response.output[0].content[0].type == "output_text"
        caller.order.over()


async def test_cancelling_is_heard_at_once(server: RunningServer):
    async with calling(server.url) as caller:
        caller.say(QUESTION, behind_ms=200)
        await caller.until("response.output_audio.delta", count=20)
        await caller.connection.response.cancel()
        done = (await caller.until("response.done", within_s=1)).response
        assert (done.status, done.status_details.reason) == ("cancelled", "client_cancelled")
        await caller.connection.response.cancel()
        assert (await caller.until("error")).error.code == "response_cancel_not_active"
        caller.say("What is the price?")
        await caller.until("response.done", count=2)
        assert caller.said() == "It costs five euros."


@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_the_bot_speaks_first_where_the_client_asks_for_it(
    server: RunningServer, llm: Asked, model: str
):
    async with calling(server.url, model=model, microphone=False, instructions="Be kind.") as caller:
        await caller.connection.response.create(response={"instructions": "Greet the person as a pirate."})
        await caller.until("response.output_audio.delta")
        system = [m["content"] for m in llm.requests[-1]["messages"] if m["role"] == "system"]
        assert any("pirate" in text for text in system)
        await caller.connection.response.cancel()
        await caller.until("response.done")
        # It holds for this answer and for no other.
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done", count=2)
        system = [m["content"] for m in llm.requests[-1]["messages"] if m["role"] == "system"]
        assert any("Be kind." in text for text in system)
        assert not any("pirate" in text for text in system)
        assert errors(caller) == []


async def test_what_the_client_brings_along_is_known_to_the_model(server: RunningServer, llm: Asked):
    async with calling(server.url, microphone=False, instructions="Be kind.") as caller:
        await typed(caller, "The person is called Ada.", role="system")
        await typed(caller, "Hello Ada, how are you?", role="assistant")
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done")
        messages = llm.requests[-1]["messages"]
        assert "called Ada" in json.dumps([m for m in messages if m["role"] == "system"])
        assert "Hello Ada" in json.dumps([m for m in messages if m["role"] == "assistant"])


# Tools


@pytest.mark.parametrize("model", PIPELINES)
async def test_a_tool_of_the_clients_is_called_and_its_answer_is_spoken(server: RunningServer, model: str):
    async with calling(server.url, model=model, tools=[WEATHER]) as caller:
        caller.answers["weather"] = lambda arguments: f"sunny in {json.loads(arguments)['city']}"
        caller.say(QUESTION, behind_ms=200)
        called = await caller.until("response.function_call_arguments.done")
        assert (called.name, json.loads(called.arguments)) == ("weather", {"city": "Paris"})
        await caller.connection.response.create()
        await caller.until("response.done", count=2)
        assert "sunny in Paris" in caller.said()
        first = caller.of("response.done")[0].response
        assert [item.type for item in first.output] == ["function_call"]
        assert [each.response.usage.input_tokens for each in caller.of("response.done")] == [12, 12]
        assert errors(caller) == []
        caller.order.over()
        assert len(caller.of("response.done")) == 2
    events = await events_of(server, session_of(caller), until="left")
    [result] = [e["payload"] for e in events if e["kind"] == "tool_result"]
    assert (result["outcome"], result["result"]) == ("done", {"output": "sunny in Paris"})


@pytest.mark.parametrize("model", PIPELINES)
async def test_tools_may_change_while_the_conversation_is_on(server: RunningServer, llm: Asked, model: str):
    async with calling(server.url, model=model, microphone=False) as caller:
        await typed(caller, "Hello.")
        await caller.connection.response.create()
        await caller.until("response.output_audio.delta")
        assert "tools" not in llm.requests[-1]
        caller.answers["weather"] = lambda _arguments: "sunny"
        await caller.connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
        await caller.until("session.updated")
        await typed(caller, QUESTION)
        await caller.connection.response.create()
        await caller.until("response.done", count=3)
        assert "sunny" in caller.said()
        await caller.connection.session.update(session={"type": "realtime", "tools": []})
        await caller.until("session.updated", count=2)
        await typed(caller, "Hello again.")
        await caller.connection.response.create()
        await caller.until("response.done", count=4)
        assert not llm.requests[-1].get("tools")
        assert errors(caller) == []


@pytest.mark.parametrize("model", PIPELINES)
async def test_tools_of_one_response_are_those_of_no_other(server: RunningServer, llm: Asked, model: str):
    async with calling(server.url, model=model, microphone=False) as caller:
        caller.answers["weather"] = lambda _arguments: "sunny"
        await typed(caller, QUESTION)
        metadata = {"client_event_id": "mine"}
        await caller.connection.response.create(response={"tools": [WEATHER], "metadata": metadata})
        await caller.until("response.function_call_arguments.done")
        await caller.connection.response.create(response={"metadata": {"client_event_id": "next"}})
        await caller.until("response.done", count=2)
        assert "sunny" in caller.said() and not llm.requests[-1].get("tools")
        shown = [each.response.metadata["client_event_id"] for each in caller.of("response.created")]
        assert shown == ["mine", "next"]
        await typed(caller, QUESTION)
        await caller.connection.response.create()
        await caller.until("response.created", count=3)
        assert not llm.requests[-1].get("tools")
        # Nor does a response without tools take those of the session.
        await caller.connection.session.update(session={"type": "realtime", "tools": [WEATHER]})
        await typed(caller, QUESTION)
        await caller.connection.response.create(response={"tool_choice": "none"})
        await caller.until("response.created", count=4)
        assert not llm.requests[-1].get("tools")
        await typed(caller, QUESTION)
        await caller.connection.response.create()
        await caller.until("response.function_call_arguments.done", count=2)
        assert errors(caller) == []


@pytest.mark.parametrize("model", PIPELINES)
async def test_a_call_is_required_of_the_first_answer_to_a_turn(
    server: RunningServer, llm: Asked, model: str
):
    named = {"type": "function", "name": "weather"}
    async with calling(server.url, model=model, microphone=False, tools=[WEATHER]) as caller:
        caller.answers["weather"] = lambda _arguments: "sunny"
        await caller.connection.session.update(session={"type": "realtime", "tool_choice": "required"})
        updated = await caller.until("session.updated", count=2)
        assert updated.session.tool_choice == "required"
        await typed(caller, QUESTION)
        await caller.connection.response.create()
        await caller.until("response.function_call_arguments.done")
        asked = [request.get("tool_choice") for request in llm.requests]
        assert asked[-1] == "required"
        # What the tool has returned is answered with words: the model decides again.
        await caller.until("response.done", count=2)
        assert "sunny" in caller.said() and llm.requests[-1].get("tool_choice") in (None, "auto")
        # One response with its own.
        await typed(caller, QUESTION)
        await caller.connection.response.create(response={"tool_choice": named})
        await caller.until("response.function_call_arguments.done", count=2)
        assert llm.requests[-1]["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
        # The session's choice, which is another one, is for turns of the caller.
        await caller.connection.response.create()
        await caller.until("response.done", count=4)
        assert llm.requests[-1]["messages"][-1]["role"] == "tool"
        assert llm.requests[-1].get("tool_choice") in (None, "auto")
        await caller.connection.session.update(session={"type": "realtime", "tool_choice": "auto"})
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done", count=5)
        assert llm.requests[-1].get("tool_choice") in (None, "auto") and errors(caller) == []


@pytest.mark.paired
async def test_a_model_that_cannot_be_made_to_call_refuses_the_choice(llm: Asked, tmp_path: Path):
    settings = f'{{base_url: "{llm.url}/v1", model: m}}'
    (tmp_path / "own.yaml").write_text(
        f"thinking: {{llm: {{name: ollama, settings: {settings}}}}}\n"
        "server: {clients: {anonymous: {client_tools: true}}}\n"
    )
    async with running_server("--config", str(tmp_path / "own.yaml")) as server:
        async with calling(server.url, microphone=False, tools=[WEATHER]) as caller:
            await caller.connection.session.update(session={"type": "realtime", "tool_choice": "required"})
            error = (await caller.until("error")).error
            assert (error.code, error.param) == ("not_supported", "session.tool_choice")
            await typed(caller, QUESTION)
            await caller.connection.response.create(response={"tool_choice": "required"})
            error = (await caller.until("error", count=2)).error
            assert (error.code, error.param) == ("not_supported", "response.tool_choice")


async def test_an_answer_outside_of_the_conversation_while_the_bot_speaks(tmp_path: Path):
    async with (
        Asked([Turn(LONG)], unstreamed=[Turn(("Joy.",))]) as llm,
        serving(llm, tmp_path) as server,
        calling(server.url, microphone=False, instructions="Be kind.") as caller,
    ):
        await typed(caller, "Hello.")
        await caller.connection.response.create()
        await caller.until("response.output_audio.delta")
        aside = {
            "conversation": "none",
            "output_modalities": ["text"],
            "instructions": "Name the mood.",
            "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hm"}]}],
            "metadata": {"topic": "mood"},
            "max_output_tokens": 20,
        }
        await caller.connection.response.create(response=aside)
        text = await caller.until("response.output_text.done")
        [request] = [each for each in llm.requests if not each.get("stream")]
        assert text.text == "Joy."
        assert "Name the mood." in json.dumps(request) and "Hello." not in json.dumps(request)
        assert 20 in request.values()
        done = (await caller.until("response.done")).response
        assert (done.metadata, done.conversation_id, done.status) == ({"topic": "mood"}, None, "completed")
        assert (done.usage.input_tokens, done.usage.output_tokens) == (12, 3)
        spoken = (await caller.until("response.done", count=2)).response
        assert spoken.usage.output_tokens == len(LONG)
        assert spoken.status == "completed" and caller.said() == "".join(LONG).strip()
        # Without input of its own it is about the conversation.
        await caller.connection.response.create(
            response={"conversation": "none", "output_modalities": ["text"]}
        )
        await caller.until("response.done", count=3)
        assert "On Sunday" in json.dumps([each for each in llm.requests if not each.get("stream")][-1])
        assert errors(caller) == []
        caller.order.over()
        session_id = session_of(caller)
        events = await events_of(server, session_id, until="bot_turn")
    assert "mood" not in json.dumps(events) and "Joy" not in json.dumps(events)


async def test_a_tool_that_cannot_be_checked_is_refused_with_the_reason(
    server: RunningServer,
):
    async with calling(server.url, tools=[WEATHER]) as caller:
        odd = {
            **WEATHER,
            "parameters": {"type": "object", "properties": {"a": {"type": "number", "not": {}}}},
        }
        await caller.connection.session.update(session={"type": "realtime", "tools": [odd]})
        error = (await caller.until("error")).error
        assert (error.code, error.param) == ("invalid_value", "session.tools[0].parameters")
        assert "'not'" in error.message
        # The earlier settings still hold.
        await caller.connection.session.update(session={"type": "realtime", "instructions": "Be kind."})
        updated = await caller.until("session.updated", count=2)
        assert updated.session.tools[0].parameters == WEATHER["parameters"]


@pytest.mark.paired
async def test_where_no_one_calls_tools_they_are_refused(small: RunningServer):
    async with calling(small.url, tools=[WEATHER]) as caller:
        error = (await caller.until("error")).error
        assert (error.code, error.param) == ("not_supported", "session.tools")
        # The conversation is there nevertheless, and answers from its documents.
        caller.say("What are your opening hours on Saturday?", behind_ms=200)
        await caller.until("response.done")
        assert "ten until two" in caller.said()
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=small.url) as client:
        while (await client.get("/status")).json()["calls"]:
            await asyncio.sleep(0.05)


async def test_typed_words_that_no_session_takes_are_refused(server: RunningServer):
    async with calling(server.url, microphone=False) as caller:
        for _ in range(5):
            await typed(caller, "What is the price? " + "x" * 30_981)
        await caller.connection.response.create()
        error = (await caller.until("error")).error
        assert error.code == "too_large" and "155004 bytes" in error.message
        # They paid nothing: what is left of them is answered when their client has taken the rest back.
        items = [event.item.id for event in caller.of("conversation.item.added")]
        for item_id in items[1:]:
            await caller.connection.conversation.item.delete(item_id=item_id)
        await caller.until("conversation.item.deleted", count=4)
        await caller.connection.response.create()
        await caller.until("response.done")
        assert "five euros" in caller.said() and len(caller.of("error")) == 1


async def test_what_a_client_types_is_paid_in_full(server: RunningServer):
    async with calling(server.url, microphone=False) as caller:
        # 31 kB each, of 150: the fifth has to wait.
        for number in range(1, 5):
            await typed(caller, "What is the price? " + "x" * 30_980)
            await caller.connection.response.create()
            await caller.until("response.created", count=number)
        await typed(caller, "What is the price? " + "x" * 30_980)
        await caller.connection.response.create()
        error = (await caller.until("error")).error
        assert error.code == "rate_limited" and "try again in" in error.message


# Sessions


async def test_an_earlier_session_goes_on(server: RunningServer, llm: Asked):
    async with calling(server.url, microphone=False) as caller:
        await typed(caller, "My dog is called Rex.")
        await caller.connection.response.create()
        await caller.until("response.output_audio.delta")
        session_id = session_of(caller)
    await events_of(server, session_id, until="left")
    async with calling(server.url, microphone=False, query={"session": session_id}) as caller:
        assert session_of(caller) == session_id
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done")
        assert "Rex" in json.dumps(llm.requests[-1]["messages"])


# Refused input


async def test_what_is_wrong_is_said_and_the_session_goes_on_as_does_every_other(server: RunningServer):
    url = server.url.replace("http", "ws") + "/v1/realtime?model=parley-cascade"
    async with (
        calling(server.url) as other,
        websockets.connect(url, max_size=None) as socket,
    ):
        assert json.loads(await socket.recv())["type"] == "session.created"

        async def refused(message: str | bytes) -> dict[str, Any]:
            await socket.send(message)
            answer = json.loads(await socket.recv())
            assert answer["type"] == "error"
            assert answer["error"]["type"] == "invalid_request_error"
            return answer["error"]

        def event(type_: str, **fields: Any) -> str:
            return json.dumps({"type": type_, "event_id": "mine", **fields})

        assert (await refused("{no"))["code"] == "invalid_json"
        assert (await refused("[1]"))["code"] == "invalid_json"
        assert (await refused(b"\x00\x01"))["code"] == "invalid_payload"
        unknown = await refused(event("conversation.fly"))
        assert (unknown["code"], unknown["param"], unknown["event_id"]) == ("unknown_event", "type", "mine")
        bad = await refused(event("input_audio_buffer.append", audio="*not base64*"))
        assert (bad["code"], bad["param"], bad["event_id"]) == ("invalid_payload", "audio", "mine")
        odd = await refused(event("input_audio_buffer.append", audio="AAAA"))
        assert (odd["code"], odd["param"]) == ("invalid_payload", "audio")
        large = base64.b64encode(bytes(1_600_000)).decode()
        assert (await refused(event("input_audio_buffer.append", audio=large)))["code"] == "too_large"
        ruled = await refused(event("session.update", session={"audio": {"input": {"format": "mp3"}}}))
        assert (ruled["code"], ruled["param"]) == ("invalid_value", "session.audio.input.format")
        gone = await refused(
            event("conversation.item.truncate", item_id="x", content_index=0, audio_end_ms=1)
        )
        assert (gone["code"], gone["param"]) == ("item_truncate_invalid_item_id", "item_id")
        # Ten times faster than speech.
        minute = base64.b64encode(bytes(PCM_HZ * 2 * 25)).decode()
        for _ in range(4):
            await socket.send(event("input_audio_buffer.append", audio=minute))
        fast = json.loads(await socket.recv())["error"]
        assert (fast["code"], fast["param"]) == ("too_fast", "audio")
        content = [{"type": "input_text", "text": "What is the price?"}]
        item = {"type": "message", "role": "user", "content": content}
        await socket.send(event("conversation.item.create", item=item))
        await socket.send(event("response.create"))
        async with asyncio.timeout(60):
            while json.loads(await socket.recv())["type"] != "response.output_audio.delta":
                pass
        other.say("What is the price?")
        await other.until("response.done")
        assert (other.said(), errors(other)) == ("It costs five euros.", [])


async def test_events_that_come_too_fast_are_refused_and_the_next_are_taken(server: RunningServer):
    async with calling(server.url, microphone=False) as caller:
        sent = 0
        while not caller.of("error"):
            for _ in range(25):
                await caller.send(type="input_audio_buffer.clear")
            sent += 25
            await caller.until_true(
                lambda sent=sent: (
                    len(caller.of("error")) + len(caller.of("input_audio_buffer.cleared")) >= sent
                )
            )
        assert {error.code for error in errors(caller)} == {"rate_limited"}
        await asyncio.sleep(1)
        known = len(errors(caller))
        await typed(caller, "What is the price?")
        await caller.connection.response.create()
        await caller.until("response.done")
        assert len(errors(caller)) == known


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [({"session": "nobody"}, {}, 404), ({}, {"Origin": "https://elsewhere.example"}, 403)],
)
async def test_who_is_not_let_in_is_told_at_the_handshake(
    server: RunningServer, query: dict[str, str], headers: dict[str, str], status: int
):
    assert await handshake(server, query, headers) == status


async def handshake(server: RunningServer, query: dict[str, str], headers: dict[str, str]) -> int:
    client = AsyncOpenAI(api_key="x", base_url=f"{server.url}/v1")
    connecting = client.realtime.connect(model="parley-cascade", extra_query=query, extra_headers=headers)
    with pytest.raises((websockets.InvalidStatus, OpenAIError)) as refused:
        async with connecting:
            raise AssertionError("let in")
    await client.close()
    error: BaseException | None = refused.value
    while error is not None and not isinstance(error, websockets.InvalidStatus):
        error = error.__cause__
    assert error is not None, refused.value
    return error.response.status_code


async def test_a_full_server_says_so_at_the_handshake(small: RunningServer):
    async with calling(small.url) as caller:
        assert await handshake(small, {}, {}) == 503
        assert errors(caller) == []
