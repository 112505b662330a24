"""Changes of the tier that go wrong or come at the wrong moment, on a real server with a scripted model.

Offers that are declined and accepted, a takeover in the middle of an answer, a wait for nothing, a server
that dies while a human has the session, and a phone call.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, front_of
from parley.evals.harness.phone_speech import packets, quiet
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.phone_caller import heard, likeness, place
from tests.peers.realtime_caller import RealtimeCaller, calling
from tests.peers.test_desk import (
    ANSWER,
    GONE,
    HASTY,
    JOINED,
    PATIENT,
    WAITING,
    WISH,
    Desked,
    serving_desk,
    until_heard,
)
from tests.voices import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Of a session whatever its place in the queue: those of other tests may wait, too.
FETCHING = "I am fetching a colleague."
OFFER = "Shall I fetch a colleague?"
POLICY = (
    "offers: [{cause: unknown, after: 2}, {cause: repairs, after: 3}, {cause: tension, after: 3}, "
    "{cause: policy, on: [complain]}, {cause: policy, on: [close my account], ask: false}]"
)
UNKNOWN = Turn(["I don't know that one. I can tell you about cards."])
# A wish that the recogniser of the embedded deployment understands in the voice of the tests.
SPOKEN_WISH = "Can I speak to a person please?"
HANDED_BACK = "My colleague has handed you back to me."
# Bound of ``likeness``: the clause was said.
SAID = 0.6


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Desked]:
    async with (
        OpenAiServer([ANSWER]) as llm,
        # The voice of the tests is judged by the tests alone.
        serving_desk(
            tmp_path_factory.mktemp("tiers"),
            llm,
            f"{PATIENT}, {POLICY}",
            more="hearing: {specialists: []}\n",
        ) as (at, _),
    ):
        yield at


def words_of(caller: RealtimeCaller) -> str:
    return " ".join(each.transcript for each in caller.of("response.output_audio_transcript.done"))


@pytest.mark.parametrize(
    ("answer", "told", "tier", "reason"),
    [
        ("No, thank you.", "All right. What else can I do for you?", "agent", "declined"),
        ("Yes, please.", FETCHING, "waiting", "accepted"),
    ],
)
async def test_an_offer_in_writing_is_declined_or_accepted(
    patient: Desked, answer: str, told: str, tier: str, reason: str
):
    patient.llm.turns = [UNKNOWN]
    session = await patient.new_session()
    assert OFFER not in (await patient.type(session, "What about trains?"))[-1][1]["text"]
    assert (await patient.type(session, "And about ships?"))[-1][1]["text"].endswith(OFFER)
    asked = len(patient.llm.requests)
    assert (await patient.type(session, answer))[-1][1]["text"].startswith(told)
    assert len(patient.llm.requests) == asked
    assert await patient.tiers(session) == [("offered", "offered"), (tier, reason)]


async def test_what_the_deployment_leaves_to_humans_is_not_asked_of_a_model(patient: Desked):
    session = await patient.new_session()
    asked = len(patient.llm.requests)
    answer = (await patient.type(session, "I'd like to close my account, please."))[-1][1]["text"]
    assert answer.startswith(FETCHING) and len(patient.llm.requests) == asked
    assert await patient.tiers(session) == [("waiting", "policy")]


async def test_an_offer_by_the_words_of_the_caller_has_its_cause_in_the_list(patient: Desked):
    session = await patient.new_session()
    asked = len(patient.llm.requests)
    assert (await patient.type(session, "I want to complain."))[-1][1]["text"] == OFFER
    assert len(patient.llm.requests) == asked
    await patient.type(session, "Yes, please.")
    listed = await patient.until_tier(session, "waiting")
    assert listed["reason"] == "accepted" and listed["cause"] == "policy"


async def test_another_question_declines_an_offer_and_is_answered(patient: Desked):
    patient.llm.turns = [UNKNOWN]
    session = await patient.new_session()
    await patient.type(session, "What about trains?")
    await patient.type(session, "And about ships?")
    patient.llm.turns = [ANSWER]
    assert (await patient.type(session, "When do you open?"))[-1][1]["text"] == "We open at ten."
    assert await patient.tiers(session) == [("offered", "offered"), ("agent", "declined")]


@pytest.mark.parametrize(
    ("answer", "told", "change"),
    [
        pytest.param(
            "No thank you.",
            "What else can I do for you?",
            ("agent", "declined"),
            marks=pytest.mark.slow,
        ),
        ("Yes please.", FETCHING, ("waiting", "accepted")),
    ],
)
async def test_an_offer_in_a_call_is_declined_or_accepted(
    patient: Desked, answer: str, told: str, change: tuple[str, str]
):
    patient.llm.turns = [UNKNOWN]
    session = await patient.new_session()
    async with calling(patient.url, query={"session": session}) as caller:
        await caller.until("session.created")
        caller.say("What about the trains?")
        await until_heard(caller, "I don't know that one.")
        await patient.until_said(session, "model", "I don't know that one.")
        caller.say("What about the ships?")
        await until_heard(caller, OFFER)
        await patient.until_said(session, "deployment", OFFER)
        caller.say(answer)
        await until_heard(caller, told)
    assert (await patient.tiers(session))[:2] == [("offered", "offered"), change]


async def test_a_caller_in_a_call_who_sounds_tense_again_and_again_is_offered_a_human(patient: Desked):
    patient.llm.turns = [ANSWER]
    session = await patient.new_session()
    tense = {"stream": "prosody", "age_ms": 0, "duration_ms": 400, "payload": {"stress": 0.95}}
    async with calling(patient.url, query={"session": session}) as caller:
        await caller.until("session.created")
        for turn in range(1, 4):
            caller.say("When do you open on Saturday?")
            async with asyncio.timeout(60):
                # As a program that listens along reports: all through the turn.
                while len([by for by, _ in await patient.said(session) if by == "caller"]) < turn:
                    body = {"annotations": [tense]}
                    await patient.client.post(f"/api/sessions/{session}/annotations", json=body)
                    await asyncio.sleep(0.2)
                while len([by for by, _ in await patient.said(session) if by == "model"]) < turn:
                    await asyncio.sleep(0.1)
        await until_heard(caller, OFFER)
    timeline = await patient.client.get(f"/api/sessions/{session}/timeline", params={"kind": "tier"})
    assert timeline.json()["events"][0]["payload"]["cause"] == "tension"


@pytest.mark.paired
async def test_a_phrase_in_a_call_uses_up_no_whisper(patient: Desked):
    patient.llm.turns = [ANSWER]
    session = await patient.new_session()
    async with calling(patient.url, query={"session": session}) as caller:
        await caller.until("session.created")
        await patient.act(session, "whisper", text="Mention the app.")
        caller.say(SPOKEN_WISH)
        await patient.until_said(session, "deployment", FETCHING)
        await patient.act(session, "take")
        await patient.act(session, "return", note="")
        await until_heard(caller, HANDED_BACK)
        caller.say("When do you open on Saturday?")
        await patient.until_said(session, "model", "We open at ten.")
        assert "Mention the app." in json.dumps(patient.llm.requests[-1])
        # The answer whose request contained it has used it up.
        asked = len(patient.llm.requests)
        caller.say("And when do you close?")
        async with asyncio.timeout(60):
            while len(patient.llm.requests) == asked:
                await asyncio.sleep(0.1)
        assert "Mention the app." not in json.dumps(patient.llm.requests[-1])


async def test_a_takeover_ends_the_answer_that_a_model_is_writing(patient: Desked):
    patient.llm.turns = [Turn(["One. ", "Two. ", *["More. "] * 200], between_ms=100)]
    session = await patient.new_session()
    pieces: list[str] = []
    held = False
    async with patient.client.stream(
        "POST", f"/api/sessions/{session}/messages", json={"text": "Count."}
    ) as answer:
        name = ""
        async for line in answer.aiter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: ") and name == "delta":
                pieces.append(json.loads(line.removeprefix("data: "))["text"])
                if len(pieces) == 2:
                    await patient.act(session, "take")
            held = held or name == "held"
    assert held and 2 <= len(pieces) < 20
    await patient.act(session, "say", text="I count for you.")
    await patient.until_said(session, "human", "I count for you.")
    said = await patient.said(session)
    # The part of the answer that was delivered, and nothing of the model after the human came.
    assert [by for by, _ in said] == ["caller", "deployment", "model", "human"] or [by for by, _ in said] == [
        "caller", "model", "deployment", "human",
    ]  # fmt: skip
    assert ("model", "".join(pieces).strip()) in said


@pytest.mark.parametrize("model", ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)])
async def test_a_takeover_in_a_call_silences_the_model_that_is_writing(patient: Desked, model: str):
    clauses = [f"This is sentence number {each} of a very long answer. " for each in range(40)]
    patient.llm.turns = [Turn(clauses, between_ms=300)]
    session = await patient.new_session()
    async with calling(patient.url, model=model, query={"session": session}) as caller:
        await caller.until("session.created")
        caller.say("When do you open on Saturday?")
        async with asyncio.timeout(60):
            while not caller.speaker.audio:
                await asyncio.sleep(0.05)
        await patient.act(session, "take")
        await patient.act(session, "say", text="Good day, I am a human.")
        await until_heard(caller, "I am a human.")
        after = words_of(caller).partition(JOINED)[2]
        assert "sentence number" not in after
    # Nothing of the model was recorded after the words of the human.
    await patient.until_said(session, "human", "I am a human.")
    said = await patient.said(session)
    human = next(at for at, (by, _) in enumerate(said) if by == "human")
    assert all(by != "model" for by, _ in said[human:])


async def test_a_caller_in_a_call_hears_that_no_human_came_and_goes_on_with_the_agent(tmp_path: Path):
    async with OpenAiServer([ANSWER]) as llm, serving_desk(tmp_path, llm, HASTY) as (at, _):
        session = await at.new_session()
        async with calling(at.url, query={"session": session}) as caller:
            await caller.until("session.created")
            caller.say(SPOKEN_WISH)
            await until_heard(caller, GONE)
            await at.until_said(session, "deployment", GONE)
            caller.say("When do you open on Saturday?")
            await until_heard(caller, "We open at ten.")
        assert (await at.tiers(session))[:2] == [("waiting", "requested"), ("back", "expired")]


async def test_a_session_that_a_human_has_stays_theirs_when_the_server_dies(tmp_path: Path):
    async with OpenAiServer([ANSWER]) as llm:
        async with serving_desk(tmp_path, llm, PATIENT) as (at, server):
            session = await at.new_session()
            await at.type(session, "My name is Ada.")
            await at.act(session, "take")
            await at.act(session, "say", text="Good day, Ada.")
            asked = len(llm.requests)
            server.process.kill()
        async with serving_desk(tmp_path, llm, PATIENT) as (at, _):
            # The caller may be there first: no model is asked.
            assert (await at.type(session, "Are you still there?"))[-1][0] == "held"
            assert not (await at.listed())[session]["mine"]
            await at.act(session, "take")
            assert (await at.listed())[session]["mine"]
            await at.act(session, "say", text="Yes, I am.")
            assert len(llm.requests) == asked
            await at.act(session, "return", note="Ada was greeted.")
            await at.type(session, "And now?")
            request = json.dumps(llm.requests[-1]["messages"])
            assert "Ada was greeted." in request and "Good day, Ada." in request and "Yes, I am." in request
            assert await at.tiers(session) == [
                ("human", "taken"), ("back", "returned"), ("agent", "replied"),
            ]  # fmt: skip


@pytest.mark.slow
async def test_a_caller_who_waits_for_a_human_still_waits_after_the_server_died(tmp_path: Path):
    async with OpenAiServer([ANSWER]) as llm:
        async with serving_desk(tmp_path, llm, PATIENT) as (at, server):
            session = await at.new_session()
            await at.type(session, WISH)
            await at.until_tier(session, "waiting")
            server.process.kill()
        async with serving_desk(tmp_path, llm, PATIENT) as (at, _):
            assert (await at.type(session, "Hello?"))[-1][1]["text"].startswith(WAITING)
            assert (await at.until_tier(session, "waiting"))["place"] == 1
            assert llm.requests == []


@pytest.mark.paired
async def test_a_caller_by_phone_hears_the_human(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", AUTH_TOKEN)
    monkeypatch.setenv("PARLEY_CALL_KEYS", "k" * 32)
    phone = f"phone: {{public_url: '{PUBLIC}'}}\n"
    async with (
        OpenAiServer([ANSWER]) as llm,
        serving_desk(tmp_path, llm, PATIENT, more=phone) as (at, server),
        front_of(server.url) as front,
    ):
        frames = [*quiet(3), *packets(say(SPOKEN_WISH)), *quiet(24)]
        call = asyncio.create_task(place(front.url, frames, max_drain_s=0.5))
        async with asyncio.timeout(60):
            while not (waiting := [each for each in (await at.listed()).values() if each["place"] == 1]):
                await asyncio.sleep(0.1)
        session = waiting[0]["id"]
        assert waiting[0]["in_call"]
        await at.act(session, "take")
        await at.until_said(session, "deployment", JOINED)
        await at.act(session, "say", text="Good day, this is the branch office.")
        await at.until_said(session, "human", "this is the branch office.")
        await at.act(session, "return", note="")
        report = await call
        assert report.violations == [] and front.violations == []
        assert likeness(heard(report), "Good day, this is the branch office.") > SAID
        assert likeness(heard(report), HANDED_BACK) > SAID
        assert llm.requests == [] or all(WISH not in json.dumps(each) for each in llm.requests)
