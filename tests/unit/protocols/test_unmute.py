"""Unmute's protocol without a socket: the conversation that a client is shown, and when."""

import json
from typing import Any

from parley.core.call_choices import VoiceNames
from parley.protocols.client_protocol import (
    CallerStarted,
    CallerStopped,
    Happening,
    RecognisedWords,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
    Send,
    SessionUpdate,
)
from parley.protocols.unmute import Unmute


def reported(protocol: Unmute, *happenings: Happening) -> list[dict[str, Any]]:
    return [message for each in happenings for message in protocol.messages_for(each, 0)]


def shown(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the conversation of the last event that has it."""
    outputs = [each for each in messages if each["type"] == "unmute.additional_outputs"]
    return [(each["role"], each["content"]) for each in outputs[-1]["args"]["chat_history"]]


def test_the_conversation_comes_before_the_end_of_the_reply():
    messages = reported(Unmute(), ReplyBegan("a"), ReplyWords("Good"), ReplyWords("morning."), ReplyOver("a"))
    types = [each["type"] for each in messages]
    assert types[-3:] == ["response.text.done", "unmute.additional_outputs", "response.audio.done"]
    assert shown(messages) == [("assistant", "Good morning.")]


def test_words_that_come_after_the_end_of_their_turn_belong_to_it():
    protocol = Unmute()
    messages = reported(
        protocol,
        CallerStarted(),
        RecognisedWords("one", True),
        CallerStopped(),
        ReplyBegan("a"),
        ReplyWords("Yes."),
        RecognisedWords("two", True),
        ReplyOver("a"),
        CallerStarted(),
        RecognisedWords("three", True),
        CallerStopped(),
    )
    assert shown(messages) == [("user", "one two"), ("assistant", "Yes."), ("user", "three")]


def test_a_turn_that_goes_on_is_one_message():
    messages = reported(
        Unmute(),
        CallerStarted(),
        RecognisedWords("one", True),
        CallerStarted(),
        RecognisedWords("two", True),
        CallerStopped(),
    )
    assert shown(messages) == [("user", "one two")]


def test_what_has_no_words_is_not_shown():
    messages = reported(
        Unmute(), CallerStarted(), CallerStopped(), ReplyBegan("a"), ReplyOver("a", was_cut=True)
    )
    assert shown(messages) == []


def updated(protocol: Unmute, **session: Any) -> tuple[SessionUpdate, list[dict[str, Any]]]:
    """Send an update; return what it requests, and the messages about it."""
    text = json.dumps({"type": "session.update", "session": {"allow_recording": True, **session}})
    actions = protocol.read(text, 0)
    [update] = [action for action in actions if isinstance(action, SessionUpdate)]
    return update, [action.message for action in actions if isinstance(action, Send)]


def test_a_voice_of_the_list_speaks_and_is_shown():
    protocol = Unmute()
    protocol.permit(instructions=True, voices=VoiceNames(("parley", "rms")))
    update, [shown] = updated(protocol, voice="rms", allow_recording=False)
    assert (update.voice, update.allow_recording) == ("rms", False)
    assert shown["session"] == {"instructions": None, "voice": "rms", "allow_recording": False}
    [created] = reported(protocol, ReplyBegan("a"))
    assert created["response"]["voice"] == "rms"


def test_in_place_of_an_unknown_voice_the_deployments_speaks_and_a_warning_says_so():
    protocol = Unmute()
    protocol.permit(instructions=True, voices=VoiceNames(("parley", "rms")))
    updated(protocol, voice="rms")
    update, [warning, shown] = updated(protocol, voice="unmute-prod-website/ex04.wav")
    assert update.voice == shown["session"]["voice"] == "parley"
    # The front end logs a warning, and shows any other error to its user.
    assert (warning["type"], warning["error"]["type"]) == ("error", "warning")
    assert "ex04.wav" in warning["error"]["message"] and "parley, rms" in warning["error"]["message"]


def test_an_update_without_a_voice_leaves_it():
    protocol = Unmute()
    protocol.permit(instructions=True, voices=VoiceNames(("parley", "rms")))
    updated(protocol, voice="rms")
    update, [shown] = updated(protocol)
    assert update.voice is None and shown["session"]["voice"] == "rms"


def test_a_reference_voice_is_chosen_before_the_conversation_and_kept():
    protocol = Unmute()
    protocol.permit(instructions=True, voices=VoiceNames(clones=True, references=("anna", "ben")))
    update, [shown] = updated(protocol, voice="anna")
    assert (update.voice, update.reference_voice) == (None, "anna")
    assert shown["session"]["voice"] == "anna"
    # The front end repeats its settings.
    assert len(updated(protocol, voice="anna")[1]) == 1
    for voice in ("ben", "parley"):
        update, [warning, shown] = updated(protocol, voice=voice)
        assert update.reference_voice == shown["session"]["voice"] == "anna"
        assert warning["error"]["code"] == "voice_set"
