"""OpenAI's realtime protocol over WebRTC, by aiortc, against the server as a user starts it."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed

from tests.peers.event_caller import PATH, SDP, EventCaller, called
from tests.peers.llm_script import Turn
from tests.peers.server import TOKEN, RunningServer
from tests.peers.test_openai_realtime import LONG, WEATHER, Asked, bot_turns, events_of, serving
from tests.peers.webrtc_caller import until_state
from tests.voices import say

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.paired]

# Silence of the track is that of its codec.
QUIET = 200


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with (
        Asked([Turn(LONG)], after_tool=LONG) as llm,
        serving(llm, tmp_path_factory.mktemp("own")) as server,
    ):
        yield server


def loudest(caller: EventCaller, since: int = 0) -> int:
    """Return the level of the loudest sample that was heard since so many bytes."""
    return int(np.abs(np.frombuffer(bytes(caller.heard[since:]), "<i2").astype(int)).max(initial=0))


async def test_a_spoken_turn_calls_a_tool_and_its_answer_is_interrupted(server: RunningServer):
    async with called(server.url, session={"instructions": "Be kind.", "tools": [WEATHER]}) as caller:
        session_id = caller.last("session.created")["session"]["id"]
        caller.microphone.say(say("What are your opening hours?"))
        await caller.until(lambda: caller.of_type("response.function_call_arguments.done"))
        tool = caller.last("response.function_call_arguments.done")
        assert json.loads(tool["arguments"]) == {"city": "Paris"}
        output = {"type": "function_call_output", "call_id": tool["call_id"], "output": "sunny"}
        caller.send({"type": "conversation.item.create", "item": output})
        caller.send({"type": "response.create"})
        await caller.until(lambda: caller.of_type("output_audio_buffer.started"))
        await caller.until(lambda: "sunny" in str(caller.of_type("response.output_audio_transcript.delta")))
        caller.microphone.say(say("Stop, please tell me the price."))
        await caller.until(lambda: caller.of_type("conversation.item.truncated"))
        silent_from = len(caller.heard)
        types = caller.types()
        order = ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "response.done"]
        places = [len(types) - types[::-1].index(each) for each in order]
        assert places == sorted(places)
        truncated = caller.last("conversation.item.truncated")
        await caller.until(lambda: len(caller.of_type("output_audio_buffer.started")) == 2)
        # What the client's jitter buffer held, and then nothing until the next answer.
        assert loudest(caller, silent_from + 16_000 * 2 * 3 // 10) < QUIET
        await caller.until(lambda: caller.of_type("output_audio_buffer.stopped"))
        assert loudest(caller) > 3_000
        assert caller.last("response.output_audio_transcript.done")["transcript"] == "It costs five euros."
        caller.send({"type": "conversation.item.retrieve", "item_id": truncated["item_id"]})
        await caller.until(lambda: caller.of_type("conversation.item.retrieved"))
        [part] = caller.last("conversation.item.retrieved")["item"]["content"]
        assert "response.output_audio.delta" not in types and not caller.of_type("error")
        async with httpx.AsyncClient(base_url=server.url) as client:
            assert (await client.post(f"{PATH}/{caller.call_id}/hangup")).status_code == 200
        await until_state(caller.connection, "closed", within_s=10)
    said = bot_turns(await events_of(server, session_id, until="left"))
    # The session keeps what was heard, by the server's own clock.
    assert said[0]["text"] == part["transcript"] and said[0]["truncated"], said
    assert "all day long" not in part["transcript"]


async def test_a_client_that_ends_its_own_turns_is_answered_after_the_commit(server: RunningServer):
    async with called(server.url, session={"audio": {"input": {"turn_detection": None}}}) as caller:
        caller.send({"type": "input_audio_buffer.clear"})
        await caller.until(lambda: caller.of_type("input_audio_buffer.cleared"))
        caller.microphone.say(say("What is the price?"))
        # A person lets the button go after the last word.
        await caller.microphone.until_said()
        assert "input_audio_buffer.speech_started" not in caller.types()
        caller.send({"type": "input_audio_buffer.commit"})
        caller.send({"type": "response.create"})
        await caller.until(lambda: caller.of_type("output_audio_buffer.stopped"))
        heard = caller.last("conversation.item.input_audio_transcription.completed")["transcript"]
        assert "price" in heard
        assert caller.last("response.output_audio_transcript.done")["transcript"] == "It costs five euros."
        assert caller.types().count("response.created") == 1 and not caller.of_type("error")


async def test_the_official_client_sends_the_offer_of_a_page_with_a_session_in_text(server: RunningServer):
    caller = EventCaller()
    session = {"type": "realtime", "model": "parley-cascade", "output_modalities": ["text"]}
    async with AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as openai:
        sdp = (await caller.offer())["sdp"]
        answer = await openai.realtime.calls.create(sdp=sdp, session=session)  # type: ignore[arg-type]
        await caller.take(answer.response)
        try:
            await caller.until(lambda: caller.of_type("session.updated"))
            assert caller.last("session.updated")["session"]["output_modalities"] == ["text"]
            item = {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "The price?"}],
            }
            caller.send({"type": "conversation.item.create", "item": item})
            caller.send({"type": "response.create"})
            await caller.until(lambda: caller.of_type("response.done"))
            assert caller.last("response.output_text.done")["text"] == "It costs five euros."
            assert "output_audio_buffer.started" not in caller.types() and loudest(caller) < QUIET
            await openai.realtime.calls.hangup(caller.call_id)
            await until_state(caller.connection, "closed", within_s=10)
        finally:
            await caller.hang_up()


async def test_an_application_s_server_runs_the_tool_of_a_call_that_its_page_holds(server: RunningServer):
    async with (
        called(server.url) as caller,
        AsyncOpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as openai,
        openai.realtime.connect(call_id=caller.call_id) as sideband,
    ):
        created = await sideband.recv()
        assert created.type == "session.created"
        assert created.session.id == caller.last("session.created")["session"]["id"]  # type: ignore[union-attr]
        await sideband.session.update(session={"type": "realtime", "tools": [WEATHER]})  # type: ignore[arg-type,list-item]
        await caller.until(lambda: caller.of_type("session.updated"))
        caller.microphone.say(say("What are your opening hours?"))
        async with asyncio.timeout(60):
            async for event in sideband:
                if event.type == "response.function_call_arguments.done":
                    output = {"type": "function_call_output", "call_id": event.call_id, "output": "sunny"}
                    await sideband.conversation.item.create(item=output)  # type: ignore[arg-type]
                    await sideband.response.create()
                elif event.type == "output_audio_buffer.started":
                    break
        await caller.until(lambda: "sunny" in str(caller.of_type("response.output_audio_transcript.delta")))
        await sideband.response.cancel()
        await caller.until(lambda: caller.of_type("output_audio_buffer.cleared"))
        await caller.hang_up()
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(20):
                while True:
                    await sideband.recv()


async def test_an_offer_whose_client_does_not_come_is_no_session(server: RunningServer):
    caller = EventCaller()
    async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {TOKEN}"}) as client:
        before = (await client.get("/api/sessions")).json()
        answer = await client.post(PATH, content=(await caller.offer())["sdp"], headers=SDP)
        assert answer.status_code == 201
        assert (await client.post(f"{answer.headers['location']}/hangup")).status_code == 200
        async with asyncio.timeout(10):
            while (await client.get("/health")).json()["calls"]:
                await asyncio.sleep(0.05)
        assert (await client.get("/api/sessions")).json() == before
    await caller.hang_up()
