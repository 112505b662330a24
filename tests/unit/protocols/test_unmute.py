"""Unmute's protocol without a socket: the conversation that a client is shown, and when."""

from typing import Any

from parley.protocols.client_protocol import (
    CallerStarted,
    CallerStopped,
    Happening,
    RecognisedWords,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
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
