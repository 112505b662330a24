"""Disclosure and evidence in whole calls, on virtual time."""

import asyncio
import base64
from pathlib import Path

import pytest
from pipecat.frames.frames import CancelFrame

from parley.core.errors import EngineError
from parley.core.provenance import digest_of
from parley.session_store.events import Event, Kind
from parley.session_store.evidence import EVIDENCE_KEY_ENV, EVIDENT, EvidenceSigner, verify
from tests.fakes.scripted_llm import Script, ScriptedRow
from tests.sim.call import OFF, RunningCall, SimulatedCall, silence, simulate, voice

TELLS = "You are talking to an AI, and not to a person."
PROMPT = "Answer in one sentence."
BOT = {"disclosure": TELLS, "system_prompt": PROMPT}
SEED = bytes(range(32))


def of_kind(call: SimulatedCall, kind: Kind) -> list[Event]:
    return [event for event in call.events if event.kind is kind]


@pytest.mark.parametrize("mode", ["cascade", "duplex"])
def test_a_disclosure_comes_first_and_nothing_interrupts_it(tmp_path: Path, mode: str):
    call = simulate(
        [silence(600), voice(1_200), silence(8_000)],
        tmp_path,
        greeting="Hello.",
        talks_over=True,
        bot=BOT,
        speculation=OFF,
        omni=[] if mode == "duplex" else None,
    )
    said = [(event.payload["text"], event.payload.get("truncated")) for event in of_kind(call, Kind.BOT_TURN)]
    assert said[0] == (TELLS, False)
    [disclosed] = of_kind(call, Kind.DISCLOSED)
    assert disclosed.payload["text"] == TELLS
    assert disclosed.payload["call_id"] == call.call.call_id


def test_a_caller_who_hangs_up_in_it_has_not_heard_it(tmp_path: Path):
    long = " ".join([TELLS] * 10)

    async def hang_up(running: RunningCall) -> None:
        await asyncio.sleep(2)
        running.call.live.input.put(CancelFrame())

    call = simulate([silence(9_000)], tmp_path, bot={**BOT, "disclosure": long}, concurrently=hang_up)
    [cut] = of_kind(call, Kind.BOT_TURN)
    assert cut.payload["truncated"] and long.startswith(cut.payload["text"])
    assert of_kind(call, Kind.DISCLOSED) == []


@pytest.mark.parametrize("mode", ["cascade", "duplex"])
def test_the_session_signs_the_disclosure_and_the_maker_of_each_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
):
    monkeypatch.setenv(EVIDENCE_KEY_ENV, base64.b64encode(SEED).decode())
    call = simulate(
        [silence(6_000), voice(1_200), silence(8_000)],
        tmp_path,
        greeting="Hello.",
        bot=BOT,
        speculation=OFF,
        privacy={"evidence": True},
        omni=[] if mode == "duplex" else None,
    )
    *phrases, answer = of_kind(call, Kind.BOT_TURN)
    assert [each.payload.get("made_by") for each in phrases] == [None] * len(phrases)
    made_by = answer.payload["made_by"]
    assert made_by["prompt"] == digest_of(PROMPT)
    assert made_by["engines"] == {"stt": "moonshine_tiny", "llm": "documents", "tts": "hibari"}
    assert "begun_by" not in made_by
    covered = [event.payload["of"] for event in of_kind(call, Kind.EVIDENCE)]
    assert covered == [event.seq for event in call.events if event.kind in EVIDENT]
    found = verify(call.call.conversation.session_id, call.events, trusted=EvidenceSigner(SEED).public_key)
    assert (found.entries, found.problems) == (len(covered), ())


def signed_answers(call: SimulatedCall) -> list[tuple[str, str, list[str]]]:
    """Return each reply with the engine that finished it and those that had begun it."""
    answers = [event.payload for event in of_kind(call, Kind.BOT_TURN)]
    return [
        (each["text"], each["made_by"]["engines"]["llm"], each["made_by"].get("begun_by", []))
        for each in answers
    ]


@pytest.mark.parametrize(
    ("script", "answered"),
    [
        (
            [EngineError("refused", engine="llm")],
            [("We open at nine.", "documents", []), ("It is ten.", "anthropic", [])],
        ),
        (
            ["We open. ", EngineError("cut", engine="llm")],
            [("We open. At nine.", "documents", ["anthropic"]), ("It is ten.", "anthropic", [])],
        ),
    ],
)
def test_the_session_signs_the_model_that_answered_after_a_failover(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Script,
    answered: list[tuple[str, str, list[str]]],
):
    monkeypatch.setenv(EVIDENCE_KEY_ENV, base64.b64encode(SEED).decode())
    fallback = "At nine." if len(script) > 1 else "We open at nine."
    call = simulate(
        [silence(600), voice(1_200), silence(8_000), voice(1_200), silence(8_000)],
        tmp_path,
        scripts=[(fallback,)],
        row=ScriptedRow(script, ("It is ten.",)),
        guarded="anthropic",
        guard={"bridge": ""},
        bot={"system_prompt": PROMPT},
        speculation=OFF,
        privacy={"evidence": True},
    )
    assert signed_answers(call) == answered
    [failover] = [event.payload for event in of_kind(call, Kind.FAILOVER)]
    assert (failover["stage"], failover["engine"], failover["successor"]) == (
        *("thinking", "anthropic", "documents"),
    )
    found = verify(call.call.conversation.session_id, call.events, trusted=EvidenceSigner(SEED).public_key)
    assert found.problems == ()
