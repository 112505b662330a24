"""The session names the passages that a spoken answer rests on, and those of no other answer."""

from pathlib import Path
from typing import Any

from parley.core.passage_notes import CitedPassage
from parley.session_store.events import Kind
from tests.sim.call import OFF, SimulatedCall, silence, simulate, voice

FEES = CitedPassage("the fee schedule", "Cards abroad", 4)
HOURS = CitedPassage("the branch guide", "Opening hours", 1)
CITES = {"percent": FEES, "nine": HOURS}


def replies(call: SimulatedCall) -> list[tuple[str, Any]]:
    payloads = [event.payload for event in call.events if event.kind is Kind.BOT_TURN]
    return [(payload["text"], payload.get("passages")) for payload in payloads]


def test_each_reply_names_its_own_passages(tmp_path: Path):
    caller = [silence(500), voice(1_200), silence(3_000), voice(1_200), silence(3_000)] * 2
    call = simulate(
        caller,
        tmp_path,
        scripts=[("A payment costs 1.5 percent. ",), ("You are welcome. ",), ("We open at nine. ",)],
        speculation=OFF,
        cites=CITES,
    )
    assert replies(call)[:3] == [
        ("A payment costs 1.5 percent.", [FEES.as_json()]),
        ("You are welcome.", None),
        ("We open at nine.", [HOURS.as_json()]),
    ]


def test_the_passages_of_a_withdrawn_guess_are_in_no_record(tmp_path: Path):
    caller = [silence(500), voice(1_000), silence(400), voice(1_000), silence(3_000)]
    call = simulate(
        caller,
        tmp_path,
        scripts=[("We open at nine. ",), ("The answer is yes. ",)],
        completeness=[0.0, 0.0, 0.0, 0.95],
        cites=CITES,
    )
    assert len(call.model.asked) == 2
    assert replies(call) == [("The answer is yes.", None)]


def test_an_answer_that_was_made_ahead_names_its_passages(tmp_path: Path):
    call = simulate(
        [silence(500), voice(1_200), silence(3_000)],
        tmp_path,
        scripts=[(0.15, "We open at nine. ")],
        cites=CITES,
    )
    assert call.turns[0].answered_ahead
    assert replies(call) == [("We open at nine.", [HOURS.as_json()])]
