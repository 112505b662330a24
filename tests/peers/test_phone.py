"""Phone calls: a simulated caller, Twilio's side of a call, and the product as a user starts it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from parley.evals.chaos.stopped_server import stand_still
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, Front, front_of
from parley.evals.harness.phone_speech import packets, quiet, samples_of
from tests.peers.llm_script import Turn
from tests.peers.minicpm_server import minicpm_server
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import BEARER
from tests.peers.phone_caller import heard, keys_in, likeness, place
from tests.peers.server import RunningServer, running_server
from tests.peers.test_webrtc_call import turns_of
from tests.peers.twilio_rest import ACCOUNT, Phone, RestServer, twilio_rest
from tests.peers.webrtc_caller import greeted
from tests.voices import say

QUESTION = "What are your opening hours on Saturday?"
GREETING = "Hello, this is Parley. Ask me about this service, or about Northwind Bank."
TURNS = ("user_turn", "bot_turn")
QUEUED = "Every line is taken. You are number 1 in the queue."
# Bounds of ``likeness``: the clause was said, it was not said.
SAID, NOT_SAID = 0.6, 0.4
shared = pytest.mark.asyncio(loop_scope="module")
# Of full scale; comfort noise is softer and never digital silence.
LOUD = 0.004
# By now the greeting has ended, on a busy machine too.
GREETED_S = 7.0
# A greeting of two words, and the time at which it has ended.
BRIEFLY = "bot: {greeting: Hello there.}\n"
BRIEFLY_GREETED_S = 4.0


@asynccontextmanager
async def telephone(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *arguments: str,
    phone: str = "",
    more: str = "",
    log: Path | None = None,
    keys: str = "k" * 32,
) -> AsyncIterator[tuple[RunningServer, Front]]:
    """Run a server with a telephone line, and the other end of the line."""
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", AUTH_TOKEN)
    # Callers by phone need no key; without keys a server of that name does not start.
    monkeypatch.setenv("PARLEY_CALL_KEYS", keys)
    # All deployments of the tests use the tests' own store.
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{folder}/sessions.db")
    config = folder / "phone.yaml"
    config.write_text(f"phone: {{public_url: '{PUBLIC}'{phone}}}\n{more}")
    async with (
        running_server("--config", str(config), *arguments, log=log) as server,
        front_of(server.url) as front,
    ):
        yield server, front


@asynccontextmanager
async def line_of_a_module(
    factory: pytest.TempPathFactory, *, account: str | None = None, phone: str = "", more: str = ""
) -> AsyncIterator[RunningServer]:
    """The server of ``telephone`` for several tests, in whose environment nothing stays of it."""
    async with AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as monkeypatch:
            if account is not None:
                monkeypatch.setenv("TWILIO_ACCOUNT_SID", account)
            at = telephone(factory.mktemp("line"), monkeypatch, phone=phone, more=more)
            server, _ = await stack.enter_async_context(at)
        yield server


async def until_free(server: RunningServer) -> None:
    """Wait until no call holds a line; a caller who hung up holds theirs for a moment."""
    async with asyncio.timeout(60), httpx.AsyncClient(base_url=server.url) as client:
        while (await client.get("/status")).json()["calls"]:
            await asyncio.sleep(0.05)


async def timelines(url: str) -> list[list[dict[str, Any]]]:
    """Return the timelines of all sessions, the newest first."""
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        sessions = (await client.get("/api/sessions")).json()
        items = next(value for value in sessions.values() if isinstance(value, list))
        return [(await client.get(f"/api/sessions/{item['id']}/timeline")).json()["events"] for item in items]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_line(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with line_of_a_module(tmp_path_factory, more="server: {max_calls: 1}\n") as server:
        yield server


@shared
async def test_a_caller_asks_and_hears_the_answer(one_line: RunningServer):
    server = one_line
    await until_free(server)
    async with front_of(server.url) as front:
        # The greeting, then the question.
        report = await place(
            front.url, [*quiet(GREETED_S), *packets(say(QUESTION)), *quiet(8)], max_drain_s=0.5
        )
        assert report.violations == [] and front.violations == []
        assert set(report.result.marks_echoed) == set(report.result.marks_received) != set()
        assert likeness(heard(report), "On Saturdays they are open from ten until two.") > SAID
        assert likeness(heard(report), "On Sundays nobody is there at any time.") < NOT_SAID
        timeline, *_ = await timelines(server.url)
        said_by = {
            kind: [each["payload"]["text"] for each in timeline if each["kind"] == kind] for kind in TURNS
        }
        assert said_by["user_turn"] == [QUESTION.lower().rstrip("?")]
        assert said_by["bot_turn"][0] == GREETING
        assert "On Saturdays they are open from ten until two." in said_by["bot_turn"][1]
        # The marks have come back: it is certain that all of it was heard.
        assert all(not each["payload"]["truncated"] for each in timeline if each["kind"] == "bot_turn")


@shared
async def test_a_question_during_which_the_server_stands_still_is_understood_by_telephone(
    one_line: RunningServer,
):
    server = one_line
    await until_free(server)
    async with front_of(server.url) as front:
        said = [*quiet(GREETED_S), *packets(say(QUESTION)), *quiet(8)]
        await asyncio.gather(
            place(front.url, said, max_drain_s=0.5),
            stand_still(server.process.pid, GREETED_S + 0.6, 1.5),
        )
    timeline, *_ = await timelines(server.url)
    asked = [each["payload"]["text"] for each in timeline if each["kind"] == "user_turn"]
    assert asked == [QUESTION.lower().rstrip("?")]


@shared
async def test_a_question_during_which_the_server_stands_still_is_understood_in_a_browser(
    one_line: RunningServer,
):
    server = one_line
    await until_free(server)
    async with httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client:
        async with greeted(client) as caller:
            caller.microphone.say(say(QUESTION) + bytes(32_000 * 8))
            await stand_still(server.process.pid, 0.6, 1.5)
            await caller.until(lambda: len(turns_of(caller)) >= 2)
            assert turns_of(caller)[1]["user_text"] == QUESTION.lower().rstrip("?")


@pytest.mark.paired
async def test_a_caller_who_has_to_wait_hears_their_place_in_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with minicpm_server() as model:
        engine = f"{{name: only, engine: minicpm_worker, settings: {{url: '{model.url}'}}}}"
        pool = f"workers: {{workers: [{engine}]}}\nduplex: {{engine: {{name: pool}}}}\n"
        async with telephone(tmp_path, monkeypatch, "--mode", "duplex", more=pool) as (server, front):
            first = asyncio.create_task(place(front.url, quiet(16), max_drain_s=0.5))
            async with asyncio.timeout(60):
                while not model.chunks:
                    await asyncio.sleep(0.1)
            second = await place(front.url, quiet(10), max_drain_s=0.5)
            assert second.violations == []
            assert likeness(heard(second), QUEUED) > SAID
            assert len(model.prepared) == 1
            # The line is free: the next caller has it at once, without a queue announcement.
            await first
            third = await place(front.url, quiet(4), max_drain_s=0.5)
            assert len(model.prepared) == 2
            assert likeness(heard(third), QUEUED) < NOT_SAID
            assert front.violations == []


@shared
async def test_a_caller_for_whom_there_is_no_line_is_held_and_has_the_next_one(one_line: RunningServer):
    await until_free(one_line)
    async with front_of(one_line.url) as front:
        first = asyncio.create_task(place(front.url, quiet(3), max_drain_s=0.5))
        async with asyncio.timeout(60):
            while not front.from_server:
                await asyncio.sleep(0.1)
        mine, other = {"CallSid": "CA" + "2" * 32}, {"CallSid": "CA" + "3" * 32}
        assert "You are number 1 in the queue." in await front.answer(**mine)
        assert "You are number 2 in the queue." in await front.answer(**other)
        assert (await first).violations == []
        # Twilio repeats its request after the pause; the first caller stays first.
        async with asyncio.timeout(60):
            assert "<Connect>" not in await front.answer(**other)
            while "<Connect>" not in (twiml := await front.answer(**mine, CallStatus="in-progress")):
                await asyncio.sleep(0.2)
        stream, _ = await front.open(twiml)
        async with stream:
            assert "You are number 1 in the queue." in await front.answer(**other)
        assert front.violations == []


GOODBYE = "Thank you, goodbye."
# Of the default voice "thank you" is "sam you" in one of eight alignments to the recogniser's windows.
CLEAR = "kal16"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def exchange(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[tuple[RunningServer, RestServer]]:
    """A line whose calls can be ended and passed on."""
    async with twilio_rest() as rest:
        phone = f", api_url: '{rest.url}', transfer_to: '+15550123', number: '+15550199'"
        async with line_of_a_module(tmp_path_factory, account=ACCOUNT, phone=phone, more=BRIEFLY) as server:
            rest.server = server.url
            yield server, rest


@pytest.mark.paired
@shared
async def test_a_caller_who_says_goodbye_hears_the_answer_to_its_end_and_the_call_is_ended(
    exchange: tuple[RunningServer, RestServer],
):
    server, rest = exchange
    before = len(rest.updates)
    async with front_of(server.url) as front:
        report = await place(
            front.url, [*quiet(BRIEFLY_GREETED_S), *packets(say(GOODBYE, CLEAR)), *quiet(20)]
        )
        assert report.violations == [] and report.result.closed_by == "agent"
        timeline, *_ = await timelines(server.url)
        answer = [each["payload"] for each in timeline if each["kind"] == "bot_turn"][-1]
        assert not answer["truncated"]
        [left] = [each["payload"] for each in timeline if each["kind"] == "left"]
        assert left["reason"] == "farewell"
        # All of it was at the caller before the call was ended.
        assert set(report.result.marks_echoed) == set(report.result.marks_received)
        assert likeness(heard(report), answer["text"]) > SAID
        assert [(sid, form["Status"]) for sid, form in rest.updates[before:]] == [
            (report.result.identity.call_sid, ["completed"])
        ]


@pytest.mark.alone
@shared
async def test_a_caller_is_passed_on_to_a_person_who_has_heard_what_it_is_about(
    exchange: tuple[RunningServer, RestServer],
):
    server, rest = exchange
    async with front_of(server.url) as front:
        rest.on_redirect = front.redirect
        rest.phone = Phone(key="")
        wants = packets(say("I want to speak to a person."))
        # Long enough for the answer, the announcement of the transfer, and the report that it failed.
        call = [*quiet(BRIEFLY_GREETED_S), *packets(say(QUESTION)), *quiet(8), *wants, *quiet(20)]
        placing = asyncio.create_task(place(front.url, [*call, *wants, *quiet(24)]))
        async with asyncio.timeout(60):
            while not rest.begun:
                await asyncio.sleep(0.1)
        # No person answers: the caller hears so, and the conversation continues.
        rest.phone = Phone(key="5")
        report = await placing
        # Before the recording is judged: that takes seconds on a busy machine, and Twilio's side answers on
        # the same loop.
        async with asyncio.timeout(10):
            while len(rest.in_conference) < 2:
                await asyncio.sleep(0.1)
        assert report.violations == [] and front.violations == []
        assert likeness(heard(report), "One moment, I am getting a colleague on the line.") > SAID
        assert likeness(heard(report), "Sorry, a colleague is not available at the moment.") > SAID
        [first, second] = rest.begun.values()
        assert (first["To"], first["From"]) == (["+15550123"], ["+15550199"])
        assert "opening hours on saturday" in " ".join(rest.said).lower()
        # The second time they press a key: both are in one conference, whose name cannot be guessed.
        [name, same] = rest.in_conference
        assert name == same and len(name) > 30
        conference = [form for sid, form in rest.updates if "Twiml" in form]
        assert len(conference) == 1
        own = report.result.identity.call_sid
        assert [sid for sid, form in rest.updates if "Twiml" in form] == [own]
        turns = [
            (each["kind"], each["payload"]["text"])
            for each in (await timelines(server.url))[0]
            if each["kind"] in TURNS
        ]
        asked = [place for place, (kind, _) in enumerate(turns) if kind == "user_turn"][1:]
        # The model answers neither: what is done is the answer. The person who takes the call at once waits
        # until the caller has heard it.
        assert len(asked) == 2, turns
        assert all(turns[place + 1][1].startswith("One") for place in asked), "\n".join(map(str, turns))
        # The stream is over with it, and so is the session's part.
        assert report.result.closed_by == "agent"
        async with asyncio.timeout(60):
            while (last := (await timelines(server.url))[0][-1])["kind"] != "left":
                await asyncio.sleep(0.1)
        assert last["payload"]["reason"] == "taken_by_a_person"


class Menu(OpenAiServer):
    """Model that presses the keys of the caller's request, also when it is called speculatively."""

    async def stream(self, response: Any, turn: Turn) -> None:
        if self.requests[-1]["messages"][-1]["role"] != "tool":
            turn = Turn(tool="press_keys", arguments='{"keys": "40#22"}')
        await super().stream(response, turn)


@pytest.mark.slow
async def test_keys_that_a_model_presses_are_tones_on_the_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with Menu([Turn(pieces=["That was the menu."])]) as model:
        settings = f"{{name: openai_compatible, settings: {{base_url: '{model.url}/v1', model: m}}}}"
        more = f"{BRIEFLY}thinking: {{llm: {settings}}}\n"
        async with telephone(tmp_path, monkeypatch, more=more, log=tmp_path / "log") as (_, front):
            report = await place(
                front.url, [*quiet(BRIEFLY_GREETED_S), *packets(say(QUESTION)), *quiet(8)], max_drain_s=0.5
            )
    assert report.violations == [] and front.violations == []
    assert keys_in(heard(report)) == "40#22"
    # In their order: after the greeting, before the announcement.
    assert likeness(heard(report), "That was the menu.") > SAID


@pytest.mark.alone
async def test_what_is_heard_at_a_barge_in_is_what_the_caller_was_played_however_long_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with telephone(tmp_path, monkeypatch) as (server, front):
        front.there_s = front.back_s = 0.2
        stop = packets(say("Wait a moment please, I have another question."))
        report = await place(front.url, [*quiet(1.5), *stop, *quiet(1)], max_drain_s=0.5)
        assert report.violations == [] and front.violations == []
        [timeline] = await timelines(server.url)
        greeting = next(each["payload"] for each in timeline if each["kind"] == "bot_turn")
        assert greeting["truncated"]
        assert abs(played_ms(report) - greeting["audio_ms"]) <= 25


def played_ms(report: Any) -> float:
    """Return how much of the greeting, in ms, the caller was played before the clear."""
    at, ends_s, begins_s = 0, 0.0, None
    for event in report.result.events:
        if event.kind == "clear_received":
            assert begins_s is not None
            return 1000 * (min(event.at, ends_s) - begins_s)
        if event.kind == "media_received":
            piece = samples_of(report.audio_received[at : at + event.detail["bytes"]])
            at += len(piece)
            plays_s, ends_s = max(event.at, ends_s), max(event.at, ends_s) + len(piece) / 8_000
            if begins_s is None and not 0 < np.abs(piece).max() < LOUD:
                begins_s = plays_s
    raise AssertionError("nothing was cleared")
