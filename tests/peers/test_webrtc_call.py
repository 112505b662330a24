"""A caller over WebRTC against the whole product with its embedded engines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import numpy as np
import pytest
import pytest_asyncio

from tests.peers.server import briefly_greeting, running_server
from tests.peers.test_command import speech
from tests.peers.webrtc_caller import Caller, greeted


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    config = briefly_greeting(tmp_path_factory.mktemp("greeting"))
    async with running_server("--config", str(config)) as server:
        yield server.url


@asynccontextmanager
async def call(url: str) -> AsyncIterator[Caller]:
    """Hold a call of a caller who has heard the greeting."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, greeted(client) as caller:
        yield caller


def turns_of(caller: Caller) -> list[dict]:
    return [m["data"] for m in caller.of_type("server-message") if m["data"]["kind"] == "turn"]


def loudness(pcm: bytes) -> float:
    samples = np.frombuffer(pcm, dtype="<i2").astype(float)
    return float(np.sqrt(np.mean(samples**2))) if len(samples) else 0.0


@pytest.mark.alone
@pytest.mark.asyncio(loop_scope="module")
async def test_a_spoken_question_has_captions_while_it_is_spoken_and_is_answered_aloud(server_url: str):
    async with call(server_url) as caller:
        quiet = len(caller.heard)
        caller.microphone.say(speech("What are your opening hours on Saturday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        turn = turns_of(caller)[-1]
        assert "opening hours" in turn["user_text"]
        assert "ten until two" in turn["bot_text"]
        assert loudness(bytes(caller.heard[quiet:])) > 200
        captions = [m["data"]["final"] for m in caller.of_type("user-input")]
        assert captions.index(True) >= 3


@pytest.mark.asyncio(loop_scope="module")
async def test_typed_text_and_speech_share_one_conversation(server_url: str):
    async with call(server_url) as caller:
        caller.type("What are your opening hours on Saturday?")
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        caller.microphone.say(speech("And what about Sunday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 3)
        typed, spoken = turns_of(caller)[1:3]
        assert typed["user_text"] == "What are your opening hours on Saturday?"
        assert "closed" in spoken["bot_text"]


@pytest.mark.asyncio(loop_scope="module")
async def test_the_page_learns_which_passage_an_answer_rests_on_before_its_record(server_url: str):
    async with call(server_url) as caller:
        for turns, words in ((2, "What are your opening hours on Saturday?"), (3, "Thank you.")):
            caller.type(words, id_=str(turns))
            await caller.until(lambda turns=turns: len(turns_of(caller)) >= turns)
        messages = [m["data"] for m in caller.of_type("server-message")]
        kinds = [data["kind"] for data in messages if data["kind"] in ("passages", "turn")]
        # The greeting, the answer, the thanks.
        assert kinds == ["turn", "passages", "turn", "turn"]
        [passages] = [data["passages"] for data in messages if data["kind"] == "passages"]
        assert [each["heading"] for each in passages] == ["Branch opening hours"]
        assert passages[0]["document"] and passages[0]["number"] >= 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a_message_is_handled_once(server_url: str):
    async with call(server_url) as caller:
        assert len(caller.of_type("bot-ready")) == 1
        caller.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": {"content": "hello"}})
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        assert [m["data"]["text"] for m in caller.of_type("user-input")] == ["hello"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_blank_line_is_refused_and_cuts_nothing_off(server_url: str):
    async with call(server_url) as caller:
        caller.type("How do I report a lost card?")
        await caller.until(lambda: len(caller.of_type("bot-started-speaking")) == 2)
        for id_, blank in (("3", ""), ("4", "   ")):
            caller.send({"label": "rtvi-ai", "type": "send-text", "id": id_, "data": {"content": blank}})
        await caller.until(lambda: len(caller.of_type("error-response")) == 2)
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        assert not turns_of(caller)[1]["interrupted"]


@pytest.mark.paired
@pytest.mark.asyncio(loop_scope="module")
async def test_an_interrupted_answer_is_remembered_as_far_as_it_was_heard(server_url: str):
    async with call(server_url) as caller:
        caller.type("How do I report a lost card?")
        await caller.until(lambda: len(caller.of_type("bot-started-speaking")) == 2)
        await asyncio.sleep(1.5)
        caller.microphone.say(speech("Stop. What about Sunday?") + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        cut = turns_of(caller)[1]
        assert cut["interrupted"]
        assert 2 <= len(cut["bot_text"].split()) <= 12


@pytest.mark.asyncio(loop_scope="module")
async def test_messages_that_are_not_messages_do_not_end_the_call(server_url: str):
    async with call(server_url) as caller:
        for nonsense in (
            "not json",
            "[]",
            "{}",
            '{"type": 5}',
            '{"label": "rtvi-ai", "type": "no-such-type", "id": "x"}',
        ):
            caller.channel.send(nonsense)
        caller.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": {"content": "hello"}})
        await caller.until(lambda: len(turns_of(caller)) >= 2)
