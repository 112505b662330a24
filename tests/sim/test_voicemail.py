"""Outbound calls on virtual time: a human notices nothing, a machine is left a message."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.session_store.events import Kind
from tests.sim.call import RATE_HZ, SimulatedCall, silence, simulate, voice

GREETING, MESSAGE = "Hello, this is Parley.", "Please call us back."
PERSON, MACHINE = ("hello",), ("please", "leave", "a", "message", "after", "the", "tone")
CHOSEN: dict[str, Any] = {"message": MESSAGE}


def beep(duration_ms: int = 400, hz: float = 1_000) -> np.ndarray:
    seconds = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (0.2 * np.sin(2 * np.pi * hz * seconds)).astype(np.float32)


def texts(call: SimulatedCall, kind: Kind = Kind.BOT_TURN) -> list[str]:
    return [event.payload["text"] for event in call.events if event.kind is kind]


def place(tmp_path: Path, caller: list[np.ndarray], words: tuple[str, ...], **more: Any) -> SimulatedCall:
    given = {
        "greeting": GREETING,
        "voicemail": CHOSEN,
        "transport": "webrtc",
        "tail_ms": 20_000,
        "word_ms": 400,
    } | more
    return simulate(caller, tmp_path, words=words, **given)


def answered_by(call: SimulatedCall) -> str:
    [left] = [event.payload for event in call.events if event.kind is Kind.LEFT]
    return str(left["answered_by"])


def test_a_person_who_says_hello_is_greeted_and_then_answered(tmp_path: Path):
    caller = [silence(800), voice(400), silence(6_000), voice(400), silence(4_000)]
    call = place(tmp_path, caller, PERSON, tail_ms=500)
    assert answered_by(call) == "person"
    assert texts(call) == [GREETING, "The answer is yes. That is all."]
    # Speech from before the decision is in the session, and is not answered.
    assert texts(call, Kind.USER_TURN) == ["hello", "hello"]
    # The end of the turn, and the detector's wait after it.
    assert call.bot_spans_ms()[0][0] - 1_200 < 1_400


def test_a_person_is_answered_where_the_bot_has_no_greeting(tmp_path: Path):
    call = place(tmp_path, [silence(800), voice(400), silence(6_000)], PERSON, greeting="", tail_ms=500)
    assert texts(call) == ["The answer is yes. That is all."]


def test_someone_who_says_nothing_is_spoken_to(tmp_path: Path):
    call = place(tmp_path, [silence(6_000)], PERSON, tail_ms=500)
    assert answered_by(call) == "nobody"
    assert texts(call) == [GREETING]
    assert call.bot_spans_ms()[0][0] == pytest.approx(3_000, abs=200)


def test_a_machine_is_left_the_message_after_its_beep_and_the_call_ends(tmp_path: Path):
    caller = [silence(500), voice(3_000), silence(1_500), beep(), silence(20_000)]
    call = place(tmp_path, caller, MACHINE)
    assert answered_by(call) == "voicemail"
    assert call.end[0] == "voicemail"
    assert [(t["text"], t["truncated"]) for t in (e.payload for e in call.events) if "truncated" in t] == [
        (MESSAGE, False)
    ]
    [(began_ms, ended_ms)] = call.bot_spans_ms()
    assert 5_400 + 200 < began_ms < 5_400 + 900
    # The call ends after the last word, not in it.
    assert 0 <= len(call.stereo) * 1000 // RATE_HZ - ended_ms < 1_000
    assert texts(call) == [MESSAGE]


def test_a_machine_without_a_beep_is_left_the_message_after_its_silence(tmp_path: Path):
    call = place(tmp_path, [silence(500), voice(3_000), silence(20_000)], MACHINE)
    assert texts(call) == [MESSAGE]
    assert 2_500 <= call.bot_spans_ms()[0][0] - 3_500 < 3_500


def test_a_greeting_that_goes_on_is_not_talked_over(tmp_path: Path):
    caller = [silence(500), voice(2_000), silence(2_000), voice(3_000), silence(20_000)]
    call = place(tmp_path, caller, MACHINE)
    assert texts(call) == [MESSAGE]
    assert call.bot_spans_ms()[0][0] > 7_500 + 2_000


def test_without_a_message_the_call_ends_at_once(tmp_path: Path):
    call = place(tmp_path, [silence(500), voice(3_000), silence(20_000)], MACHINE, voicemail={})
    assert answered_by(call) == "voicemail"
    assert texts(call) == [] and call.bot_spans_ms() == []
    assert len(call.stereo) * 1000 // RATE_HZ < 3_500 + 2_000


def test_a_beep_alone_gives_a_machine_away(tmp_path: Path):
    caller = [silence(500), voice(3_000), silence(500), beep(), silence(20_000)]
    call = place(tmp_path, caller, ("uh", "um", "the", "of"))
    assert answered_by(call) == "voicemail"
    assert texts(call) == [MESSAGE]


@pytest.mark.parametrize("greeting", [GREETING, ""])
def test_a_person_hears_the_announcements_before_anything_else(tmp_path: Path, greeting: str):
    tells = "You are talking to an AI."
    caller = [silence(800), voice(400), silence(8_000)]
    call = place(tmp_path, caller, PERSON, greeting=greeting, bot={"disclosure": tells}, tail_ms=500)
    assert answered_by(call) == "person"
    assert texts(call)[0] == tells
    assert (GREETING in texts(call)) == bool(greeting)
    [disclosed] = [event for event in call.events if event.kind is Kind.DISCLOSED]
    assert disclosed.payload["text"] == tells


def test_a_machine_hears_no_announcement(tmp_path: Path):
    caller = [silence(500), voice(3_000), silence(1_500), beep(), silence(20_000)]
    call = place(tmp_path, caller, MACHINE, bot={"disclosure": "You are talking to an AI."})
    assert texts(call) == [MESSAGE]
