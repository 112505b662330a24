"""A human who speaks to a caller by WebRTC, on a real server: both ends are aiortc's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from tests.peers.minicpm_server import minicpm_server
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_desk import ANSWER, PATIENT, Desked, serving_desk
from tests.peers.webrtc_caller import Caller
from tests.voices import RATE_HZ, say, tone

# Connections close late on a busy machine.
pytestmark = [pytest.mark.paired, pytest.mark.asyncio(loop_scope="module")]

HUMAN_HZ, CALLER_HZ = 440.0, 700.0
WORDS = "What are your opening hours on Saturday?"
# A tone is heard where so much of the loudest second is at its pitch.
HEARD_SHARE = 0.5


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "server.log"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory, log: Path) -> AsyncIterator[Desked]:
    async with (
        OpenAiServer([ANSWER]) as llm,
        serving_desk(tmp_path_factory.mktemp("voice"), llm, PATIENT, log=log) as (at, _),
    ):
        yield at


async def begin(client: httpx.AsyncClient, caller: Caller, **body: object) -> httpx.Response:
    """Begin a call; return the answer of the request that was refused, or of the offer."""
    started = await client.post("/start", json={"transport": "webrtc", "body": body})
    if started.status_code != 200:
        return started
    path = f"/sessions/{started.json()['sessionId']}/api/offer"
    answer = await client.post(path, json=await caller.offer())
    if answer.status_code == 200:
        await caller.accept(answer.json())
        await caller.until(lambda: caller.of_type("bot-ready"))
    return answer


@asynccontextmanager
async def called(site: Desked, **body: object) -> AsyncIterator[Caller]:
    caller = Caller()
    try:
        answer = await begin(site.client, caller, **body)
        assert answer.status_code == 200, answer.text
        yield caller
    finally:
        await caller.hang_up()


def share_at(pcm: bytes, hz: float) -> float:
    """Return the share of the energy that a pitch has in the second in which it is loudest."""
    samples = np.frombuffer(pcm, "<i2").astype(np.float64)
    wave = np.exp(-2j * np.pi * hz * np.arange(RATE_HZ) / RATE_HZ)
    shares = [0.0]
    for at in range(0, len(samples) - RATE_HZ, RATE_HZ // 4):
        piece = samples[at : at + RATE_HZ]
        energy = (piece**2).sum()
        if energy / RATE_HZ > 100**2:
            shares.append(float(2 * np.abs(piece @ wave) ** 2 / RATE_HZ / energy))
    return max(shares)


async def until_tone(caller: Caller, hz: float) -> None:
    async with asyncio.timeout(60):
        while share_at(bytes(caller.heard), hz) < HEARD_SHARE:
            await asyncio.sleep(0.2)


async def until_heard(site: Desked, session: str, speaker: Caller, author: str, words: str) -> None:
    """Say the question, and again as people do where a busy machine lost some of it, until it is heard."""
    async with asyncio.timeout(120):
        while True:
            speaker.microphone.say(say(WORDS))
            try:
                return await site.until_said(session, author, words, within_s=20)
            except TimeoutError:
                continue


async def test_a_human_and_a_caller_hear_each_other_and_the_agent_is_silent(site: Desked):
    session = await site.new_session()
    asked = len(site.llm.requests)
    async with called(site, session=session) as caller:
        await site.act(session, "take")
        async with called(site, mode="desk", session=session, desk=site.desk) as human:
            human.microphone.say(tone(4_000, HUMAN_HZ))
            await until_tone(caller, HUMAN_HZ)
            caller.microphone.say(tone(4_000, CALLER_HZ))
            await until_tone(human, CALLER_HZ)
            assert share_at(bytes(human.heard), HUMAN_HZ) < HEARD_SHARE
            # What the human says is part of the session.
            await until_heard(site, session, human, "human", "opening hours on saturday")
            assert len(site.llm.requests) == asked
            await site.act(session, "return", note="They talked.")
            # The call of the human ends with the tier; that of the caller goes on.
            async with asyncio.timeout(60):
                while human.connection.connectionState != "closed":
                    await asyncio.sleep(0.1)
        caller.microphone.say(say(WORDS))
        await site.until_said(session, "model", "We open at ten.")


async def test_a_second_human_does_not_speak_in_the_same_call_and_one_may_come_again(site: Desked, log: Path):
    session = await site.new_session()
    async with called(site, session=session) as caller:
        await site.act(session, "take")
        async with called(site, mode="desk", session=session, desk=site.desk):
            await until_refused(site, log, session, "a colleague speaks in this call already")
        # The server learns that a client has gone, and closes the call, in its own time.
        await until_calls(site, 1)
        async with called(site, mode="desk", session=session, desk=site.desk) as human:
            human.microphone.say(tone(4_000, HUMAN_HZ))
            await until_tone(caller, HUMAN_HZ)


async def test_the_call_of_a_human_is_a_live_call_that_ends_without_that_of_the_caller(site: Desked):
    session = await site.new_session()
    async with called(site, session=session):
        await site.act(session, "take")
        async with called(site, mode="desk", session=session, desk=site.desk) as human:
            desk, caller = await live_calls_of(site, session, count=2)
            assert (desk["mode"], desk["transport"], desk["has_audio"]) == ("desk", "webrtc", False)
            assert (caller["mode"], caller["has_audio"]) == ("cascade", True)
            assert (await site.client.delete(f"/api/admin/calls/{desk['call_id']}")).status_code == 204
            async with asyncio.timeout(60):
                while human.connection.connectionState != "closed":
                    await asyncio.sleep(0.1)
            assert await live_calls_of(site, session, count=1) == [caller]
        # The human still has the session, and may speak in it again.
        assert (await site.listed())[session]["tier"] == "human"


async def live_calls_of(site: Desked, session: str, *, count: int) -> list[dict[str, Any]]:
    """Return the live calls of a session, the newest first, when there are so many."""
    async with asyncio.timeout(60):
        while True:
            listed = (await site.client.get("/api/admin/calls")).json()["calls"]
            found = [each for each in listed if each["session_id"] == session]
            if len(found) == count:
                return found
            # No event reports a change.
            await asyncio.sleep(0.05)


async def until_calls(site: Desked, count: int) -> None:
    async with asyncio.timeout(60):
        while (await site.client.get("/health")).json()["calls"] != count:
            await asyncio.sleep(0.1)


async def until_refused(site: Desked, log: Path, session: str, reason: str) -> None:
    """Begin a call of the human that the server ends for this reason, which it logs."""
    caller, before = Caller(), log.stat().st_size
    started = await site.client.post(
        "/start",
        json={"transport": "webrtc", "body": {"mode": "desk", "session": session, "desk": site.desk}},
    )
    path = f"/sessions/{started.json()['sessionId']}/api/offer"
    answer = await site.client.post(path, json=await caller.offer())
    await caller.accept(answer.json())
    async with asyncio.timeout(60):
        while reason.encode() not in log.read_bytes()[before:]:
            await asyncio.sleep(0.1)
    assert not caller.of_type("bot-ready")
    await caller.hang_up()


async def test_only_the_desk_that_has_a_session_in_a_call_may_speak(site: Desked):
    session = await site.new_session()
    body = {"mode": "desk", "session": session, "desk": site.desk}
    refused = await begin(site.client, Caller(), **body)
    assert refused.status_code == 400 and "take it over first" in refused.text
    await site.act(session, "take")
    refused = await begin(site.client, Caller(), **body)
    assert refused.status_code == 400 and "in no call" in refused.text
    async with called(site, session=session):
        refused = await begin(site.client, Caller(), **{**body, "desk": "another-desk-2"})
        assert refused.status_code == 400 and "another desk" in refused.text
        async with httpx.AsyncClient(base_url=site.url) as client:
            refused = await begin(client, Caller(), **body)
        assert refused.status_code == 400 and "for the operator" in refused.text


async def test_a_call_whose_model_hears_and_speaks_by_itself_is_not_taken_over(tmp_path: Path):
    with minicpm_server() as worker:
        more = f"duplex: {{engine: {{name: minicpm_worker, settings: {{url: '{worker.url}'}}}}}}\n"
        async with (
            OpenAiServer([ANSWER]) as llm,
            serving_desk(tmp_path, llm, PATIENT, "--mode", "duplex", more=more) as (at, _),
        ):
            session = await at.new_session()
            async with called(at, session=session, mode="duplex"):
                assert "cannot be taken over" in await at.act(session, "take", status=409)
                assert (await at.listed())[session]["tier"] == "agent"
            # In writing it can be, once the call is over.
            async with asyncio.timeout(60):
                while (await at.listed()).get(session, {}).get("in_call"):
                    await asyncio.sleep(0.1)
            await at.act(session, "take")
