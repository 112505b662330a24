"""The half-duplex page of the MiniCPM-o server against Parley's server, in real time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from websockets.exceptions import InvalidStatus

from tests.peers.minicpm_page import PREPARE, Page, page, samples_in
from tests.peers.operations_gateway import BEARER
from tests.peers.server import RunningServer, running_server
from tests.voices import say, silence

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "What are your opening hours on Saturday?"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with running_server() as running:
        yield running


async def prepared(client: Page, **config: Any) -> dict[str, Any]:
    await client.send(**{**PREPARE, "config": {**PREPARE["config"], **config}})
    return await client.until("prepared")


async def ask(client: Page, text: str) -> None:
    await client.speak(silence(500) + say(text) + silence(6_000), hushed_by="generating")


async def events(server: RunningServer, session: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=server.url) as client:
        found = await client.get(f"/api/sessions/{session}/timeline", params={"limit": 1_000})
    return found.json()["events"]


async def test_a_question_is_answered_in_words_and_sound_and_is_in_the_session(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_abc123") as client:
        session = (await prepared(client))["session_id"]
        await ask(client, QUESTION)
        done = await client.until("turn_done")
        assert client.kinds[:2] == ["queue_done", "prepared"]
        assert [kind for kind in client.kinds[2:] if kind != "vad_state"] == [
            "generating",
            "chunk",
            "turn_done",
        ]
        assert client.of("vad_state")[0]["speaking"]
        spoken_ms = len(say(QUESTION)) / 32
        assert client.of("generating")[0]["speech_duration_ms"] == pytest.approx(spoken_ms, abs=500)
        assert (done["turn_index"], "ten until two" in done["text"]) == (1, True)
        assert [each["heading"] for each in done["passages"]] == ["Branch opening hours"]
        chunks = client.of("chunk")
        assert "".join(chunk["text_delta"] or "" for chunk in chunks) == done["text"]
        assert [chunk["chunk_index"] for chunk in chunks] == list(range(len(chunks)))
        assert [chunk["is_final"] for chunk in chunks].index(True) == len(chunks) - 1
        audio = np.concatenate([samples_in(chunk) for chunk in chunks])
        told_ms = sum(chunk["duration_ms"] for chunk in chunks)
        assert told_ms == pytest.approx(len(audio) / 24, abs=1)
        assert np.abs(audio).max() > 0.05
        # The second turn of a conversation has the first in its context.
        client.received.clear()
        await ask(client, "And what about Sunday?")
        done = await client.until("turn_done")
        assert (done["turn_index"], "closed" in done["text"]) == (2, True)
        await client.send(type="stop")
        assert await client.until_closed() == (1000, "stopped")
    turns = [event for event in await events(server, session) if event["kind"] in ("user_turn", "bot_turn")]
    assert [event["kind"] for event in turns] == ["user_turn", "bot_turn"] * 2
    assert turns[0]["payload"]["transport"] == "half_duplex"


async def test_a_call_goes_on_in_writing_and_what_was_said_in_it_stays(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_8") as client:
        session = (await prepared(client))["session_id"]
        await ask(client, QUESTION)
        await client.until("turn_done")
        await client.send(type="stop")
        await client.until_closed()
    async with page(server.url, f"/ws/chat?session={session}") as client:
        # This is the whole context of a conversation that has nothing of the call.
        await client.send(messages=[{"role": "user", "content": "And what about Sunday?"}], history="whole")
        assert "closed" in (await client.until("done"))["text"]
    turns = [event for event in await events(server, session) if event["kind"] == "user_turn"]
    assert [turn["payload"]["transport"] for turn in turns] == ["half_duplex", "chat"]
    assert not any("supersedes" in turn["payload"] for turn in turns)


async def test_stop_cuts_the_answer_off_where_it_was_heard(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_abc123") as client:
        session = (await prepared(client))["session_id"]
        await ask(client, QUESTION)
        await client.until("chunk", 40)
        await client.send(type="stop")
        assert await client.until_closed(within_s=2) == (1000, "stopped")
    async with asyncio.timeout(60):
        while not (bot := [e for e in await events(server, session) if e["kind"] == "bot_turn"]):
            await asyncio.sleep(0.1)
    assert bot[0]["payload"]["truncated"]
    assert bot[0]["payload"]["unheard"]


async def test_an_operator_sees_a_conversation_and_ends_it(server: RunningServer):
    async with (
        httpx.AsyncClient(base_url=server.url, headers=BEARER) as operator,
        page(server.url, "/ws/half_duplex/hdx_live") as client,
    ):
        session = (await prepared(client))["session_id"]
        async with asyncio.timeout(60):
            # It is prepared before its pipeline is built.
            while not (listed := (await operator.get("/api/admin/calls")).json()["calls"]):
                await asyncio.sleep(0.05)
        [live] = [each for each in listed if each["session_id"] == session]
        assert (live["transport"], live["mode"], live["has_audio"]) == ("half_duplex", "cascade", True)
        assert (await operator.delete(f"/api/admin/calls/{live['call_id']}")).status_code == 204
        assert (await client.until_closed())[1] == "ended_by_operator"
    async with asyncio.timeout(60):
        while not (left := [e for e in await events(server, session) if e["kind"] == "left"]):
            await asyncio.sleep(0.1)
    assert left[0]["payload"]["reason"] == "ended_by_operator"


async def test_stop_is_obeyed_while_the_answer_is_being_thought_of(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_1") as client:
        await prepared(client)
        await ask(client, QUESTION)
        await client.send(type="stop")
        assert await client.until_closed(within_s=2) == (1000, "stopped")


async def test_a_page_that_does_not_mute_itself_does_not_interrupt_the_bot(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_2") as client:
        await prepared(client)
        await ask(client, QUESTION)
        await client.until("chunk", 10)
        received = len(client.received)
        await client.speak(say("Stop. Wait. No, stop talking please."))
        done = await client.until("turn_done")
        assert "ten until two" in done["text"]
        assert "vad_state" not in [message["type"] for message in client.received[received:]]


async def test_a_conversation_ends_when_its_time_is_over(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_3") as client:
        assert (await prepared(client, session={"timeout_s": 2}))["timeout_s"] == 2
        assert (await client.until("timeout"))["elapsed_s"] == pytest.approx(2, abs=0.3)
        assert await client.until_closed() == (1000, "timeout")


async def test_what_cannot_be_read_is_answered_and_ends_nothing(server: RunningServer):
    async with page(server.url, "/ws/half_duplex/hdx_4") as client:
        await client.socket.send("{no json")
        await client.until("error")
        await client.send(type="audio_chunk", audio_base64="AAAA")
        assert "prepare" in (await client.until("error", 2))["error"]
        await client.send(type="dance")
        await client.until("error", 3)
        await client.socket.send(b"\x00\x01")
        await client.until("error", 4)
        await prepared(client)
        await ask(client, QUESTION)
        await client.until("turn_done")


async def test_two_clients_of_one_name_have_two_conversations(server: RunningServer):
    async with (
        page(server.url, "/ws/half_duplex/hdx_5") as one,
        page(server.url, "/ws/half_duplex/hdx_5") as other,
    ):
        first, second = await prepared(one), await prepared(other)
    assert first["session_id"] != second["session_id"]
    assert "hdx_5" not in first["session_id"]


@pytest.mark.parametrize("name", ["..", "a%2Fb", "x" * 65, "a b"])
async def test_a_name_that_no_page_makes_is_refused_with_the_reason(server: RunningServer, name: str):
    with pytest.raises(InvalidStatus) as refused:
        async with page(server.url, f"/ws/half_duplex/{name.replace(' ', '%20')}"):
            pass
    assert refused.value.response.status_code in (400, 403, 404)


async def test_a_page_that_vanishes_leaves_its_line_to_the_next(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url) as http:

        async def until_calls(count: int) -> None:
            async with asyncio.timeout(60):
                while (await http.get("/health")).json()["calls"] != count:
                    await asyncio.sleep(0.1)

        # The call of the test before may be ending.
        await until_calls(0)
        async with page(server.url, "/ws/half_duplex/hdx_6") as client:
            await prepared(client)
            await ask(client, QUESTION)
            await client.until("chunk", 5)
            await until_calls(1)
            client.vanish()
        await until_calls(0)
