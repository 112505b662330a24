"""Typed turns of a recorded call."""

from parley.recording.typed import MOST_CHARACTERS, MOST_TYPED, TypedTurn, typed_turns_of


def test_typed_turns_have_their_times_from_the_arrival_in_order():
    events = [
        {"at_ms": 900, "event": "CallerJoined"},
        {"at_ms": 9_000, "event": "TextTyped", "text": "and on sunday"},
        {"at_ms": 4_000, "event": "TextTyped", "text": "on saturday"},
        {"at_ms": 5_000, "event": "TurnEnded", "text": "spoken"},
    ]
    assert typed_turns_of(events, 1_000.0) == (
        TypedTurn(3_000, "on saturday"),
        TypedTurn(8_000, "and on sunday"),
    )
    assert typed_turns_of([{"at_ms": 900, "event": "TextTyped", "text": "early"}], 1_000.0)[0].at_ms == 0


def test_what_is_no_text_is_left_out_and_a_recording_from_elsewhere_is_bounded():
    broken = [{"at_ms": 1, "event": "TextTyped", **each} for each in ({}, {"text": 5}, {"text": "  "})]
    assert typed_turns_of(broken, 0.0) == ()
    many = [{"at_ms": at_ms, "event": "TextTyped", "text": "a" * 30_000} for at_ms in range(MOST_TYPED + 5)]
    found = typed_turns_of(many, 0.0)
    assert len(found) == MOST_TYPED and len(found[0].text) == MOST_CHARACTERS
