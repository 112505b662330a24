"""Whole calls through recognisers that are services, with the default fallback after them."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.cloud_recognisers import KEY, running_recogniser
from tests.fakes.moshi_server import MoshiServer
from tests.peers.operations_gateway import BEARER
from tests.peers.server import running_server
from tests.peers.test_command import speech
from tests.peers.test_sessions import call as call_of_session
from tests.peers.test_sessions import new_session, timeline, until_not_live
from tests.peers.test_webrtc_call import turns_of

QUESTION = "What are your opening hours on Saturday?"


async def hold_call(stt: dict[str, Any], folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Call a server with a recogniser and ask it a question; return the turns and the session's events."""
    config = folder / "deployment.yaml"
    bot = {"greeting": "Hello there.", "idle": None}
    config.write_text(yaml.safe_dump({"extends": "embedded", "bot": bot, "hearing": {"stt": stt}}))
    async with (
        running_server("--config", str(config), log=folder / "log") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client,
    ):
        session = await new_session(client)
        async with call_of_session(client, session) as caller:
            caller.microphone.say(speech(QUESTION) + bytes(32_000 * 5))
            await caller.until(lambda: len(turns_of(caller)) == 2)
            turns = turns_of(caller)
        await until_not_live(client, session)
        return turns, await timeline(client, session)


@pytest.mark.paired
async def test_a_call_is_answered_by_the_words_of_kyutais_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MOSHI_KEY", KEY)
    async with running_recogniser(MoshiServer) as server:
        server.said, server.repeats = tuple(QUESTION.split()), False
        settings = {"url": server.url, "api_key_env": "MOSHI_KEY"}
        turns, events = await hold_call({"name": "kyutai", "settings": settings}, tmp_path)
    assert turns[1]["user_text"] == QUESTION
    assert "ten until two" in turns[1]["bot_text"]
    assert not [each for each in events if each["kind"] == "failover"]
    [payload] = [each["payload"] for each in events if each["kind"] == "user_turn"]
    tokens = payload["tokens"]
    assert " ".join(token["text"] for token in tokens) == QUESTION
    # The words have times: what else was perceived while the caller spoke is joined to each.
    assert len(tokens) > 1 and len({token["event_us"] for token in tokens}) == len(tokens)
