"""Facts of a replayed call for programs."""

import json
from pathlib import Path

from parley.recording.call_files import CallFiles
from parley.recording.comparison import CallTurn, compare
from parley.recording.comparison_facts import facts_of_replay
from parley.recording.comparison_page import ReplayedCall
from parley.recording.folder import CallRecording


def test_a_replay_is_compared_turn_by_turn(tmp_path: Path):
    then = [
        CallTurn(1_000, "a card", 600, "Call us.", latency_ms=800, cost=0.5),
        CallTurn(9_000, "thanks", heard="Bye."),
    ]
    now = [CallTurn(1_010, "a card", 600, "Write to us.", latency_ms=640)]
    recording = CallRecording(tmp_path, "s", "c", {}, CallFiles(tmp_path))
    pairs, reasons = tuple(compare(then, now)), (("first",), ())
    call = ReplayedCall(recording, None, pairs, ("a note",), reasons=reasons, currency="EUR")
    facts = json.loads(json.dumps(facts_of_replay(call)))
    assert (facts["is_decided_alike"], facts["failure"], facts["notes"]) == (False, "", ["a note"])
    assert facts["median"] == {
        "waited_ms": {"then": 600, "now": 600},
        "latency_ms": {"then": 800, "now": 640},
    }
    assert facts["cost"] == {"then": 0.5, "now": None, "currency": "EUR"}
    changed, missing = facts["turns"]
    assert (changed["differences"], changed["reasons"]) == (["answer"], ["first"])
    assert (changed["then"]["heard"], changed["now"]["heard"]) == ("Call us.", "Write to us.")
    assert (missing["differences"], missing["now"]) == (["only_then"], None)
