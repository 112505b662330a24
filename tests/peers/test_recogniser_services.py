"""Whole calls through recognisers that are services, with the default fallback after them."""

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from parley.evals.harness.services.cloud_recognisers import KEY, running_recogniser
from tests.fakes.mistral_server import MistralServer
from tests.fakes.moshi_server import MoshiServer
from tests.fakes.transcription_servers import TranscriptionFault, TranscriptionServer
from tests.peers.operations_gateway import BEARER
from tests.peers.server import running_server
from tests.peers.test_command import speech
from tests.peers.test_sessions import call as call_of_session
from tests.peers.test_sessions import new_session, timeline, until_not_live
from tests.peers.test_webrtc_call import turns_of

QUESTION = "What are your opening hours on Saturday?"


async def hold_call(
    stt: dict[str, Any], folder: Path, *, fallback: str | None = None, **bot: Any
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Call a server with a recogniser and ask it a question; return the turns and the session's events.

    Args:
        stt: choice of the recogniser.
        folder: for the deployment and the log.
        fallback: the recogniser after it; None: the default one.
        **bot: settings of the bot.
    """
    config = folder / "deployment.yaml"
    bot = {"greeting": "Hello there.", "idle": None, **bot}
    hearing = {"stt": stt, **({} if fallback is None else {"fallback": {"name": fallback}})}
    config.write_text(yaml.safe_dump({"extends": "embedded", "bot": bot, "hearing": hearing}))
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


@pytest.mark.paired
async def test_a_call_is_answered_by_the_words_of_mistrals_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MISTRAL_API_KEY", KEY)
    async with running_recogniser(MistralServer) as server:
        server.said, server.repeats = tuple(QUESTION.split()), False
        turns, events = await hold_call(
            {"name": "mistral", "settings": {"url": server.url}}, tmp_path, fallback="pocketsphinx"
        )
    assert turns[1]["user_text"] == QUESTION
    assert "ten until two" in turns[1]["bot_text"]
    assert not [each for each in events if each["kind"] == "failover"]


# Longer than the wait for words that no recogniser owes (``transcript_wait_ms``, ``empty_ms``) and than a
# prompt to a silent caller takes.
SLOW_S = 2.5


@pytest.mark.paired
async def test_a_turn_waits_for_the_words_that_groq_owes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    async with TranscriptionServer(said=(QUESTION,), delay_s=[SLOW_S]) as server:
        stt = {"name": "groq", "settings": {"base_url": server.url}}
        idle = {"prompt_after_ms": 1_500, "prompts": ["Are you still there?"]}
        turns, events = await hold_call(stt, tmp_path, idle=idle)
    assert not [turn for turn in turns if "still there" in turn["bot_text"]]
    # The caller's pauses cut the question into voices; each has the words of the whole here.
    assert turns[1]["user_text"].startswith(QUESTION)
    assert "ten until two" in turns[1]["bot_text"]
    assert not [each for each in events if each["kind"] == "failover"]
    [payload] = [each["payload"] for each in events if each["kind"] == "user_turn"]
    tokens = payload["tokens"]
    assert len(tokens) > 1 and len({token["event_us"] for token in tokens}) == len(tokens)


@pytest.mark.paired
async def test_a_caller_is_answered_although_groq_takes_no_more_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GROQ_API_KEY", KEY)
    async with TranscriptionServer(fault=TranscriptionFault.TOO_MANY) as server:
        stt = {"name": "groq", "settings": {"base_url": server.url}}
        turns, events = await hold_call(stt, tmp_path, fallback="pocketsphinx")
    assert len(server.requests) == 1
    assert "opening hours" in turns[1]["user_text"] and "ten until two" in turns[1]["bot_text"]
    [failover] = [each["payload"] for each in events if each["kind"] == "failover"]
    assert (failover["stage"], failover["engine"], failover["successor"], failover["reason"]) == (
        *("hearing", "groq", "pocketsphinx", "error"),
    )
