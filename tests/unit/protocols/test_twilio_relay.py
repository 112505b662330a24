"""Messages of Twilio's ConversationRelay, as its documentation shows them."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

from parley.protocols import twilio_relay, twiml
from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_relay import Prompted, RelayBegan, RelayFault, SpeechInterrupted

SETUP = {
    "type": "setup",
    "sessionId": "VX00000000000000000000000000000000",
    "accountSid": "ACXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX",
    "parentCallSid": "",
    "callSid": "CA00000000000000000000000000000000",
    "from": "+18005550100",
    "to": "+18005550101",
    "callType": "PSTN",
    "direction": "inbound",
    "callStatus": "RINGING",
    "customParameters": {"callReference": "bar"},
}


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (SETUP, RelayBegan("VX00000000000000000000000000000000", "CA00000000000000000000000000000000")),
        (
            {"type": "prompt", "voicePrompt": "Hi! Can you tell me?", "lang": "en-US", "last": True},
            Prompted("Hi! Can you tell me?", "en-US", is_last=True),
        ),
        (
            {"type": "prompt", "voicePrompt": "Hi", "lang": "en-US", "last": False},
            Prompted("Hi", "en-US", is_last=False),
        ),
        ({"type": "dtmf", "digit": "#"}, twilio_relay.Pressed("#")),
        (
            {"type": "interrupt", "utteranceUntilInterrupt": "Life is", "durationUntilInterruptMs": 460},
            SpeechInterrupted("Life is", 460),
        ),
        (
            {"type": "interrupt", "utteranceUntilInterrupt": "", "durationUntilInterruptMs": "460"},
            SpeechInterrupted("", 460),
        ),
        ({"type": "error", "description": "Invalid message"}, RelayFault("Invalid message")),
        ({"type": "something-new", "more": 1}, None),
    ],
)
def test_a_message_is_read(message: dict[str, Any], event: object):
    assert twilio_relay.read(json.dumps(message)) == event


@pytest.mark.parametrize(
    "message",
    [
        "",
        "[]",
        "{}",
        '{"type": "setup", "sessionId": "VX"}',
        '{"type": "dtmf", "digit": "12"}',
        '{"type": "interrupt", "utteranceUntilInterrupt": "a", "durationUntilInterruptMs": -1}',
        json.dumps({"type": "prompt", "voicePrompt": "a" * 8_001}),
        json.dumps({"type": "error", "description": "a" * 70_000}),
    ],
)
def test_what_cannot_be_read_is_refused(message: str):
    with pytest.raises(ProtocolError):
        twilio_relay.read(message)


def test_messages_to_twilio():
    assert json.loads(twilio_relay.token("Hello", is_last=False)) == {
        "type": "text",
        "token": "Hello",
        "last": False,
    }
    assert json.loads(twilio_relay.token("", is_last=True))["last"] is True
    protected = json.loads(twilio_relay.token("Hello", is_last=True, language="en", is_interruptible=False))
    assert (protected["lang"], protected["interruptible"]) == ("en", False)
    ended = json.loads(twilio_relay.end({"to": "person"}))
    assert ended["type"] == "end" and json.loads(ended["handoffData"]) == {"to": "person"}
    assert json.loads(twilio_relay.end()) == {"type": "end"}
    assert json.loads(twilio_relay.keys("40#22*")) == {"type": "sendDigits", "digits": "40#22*"}
    played = twilio_relay.play("https://a.example/b.mp3", loop=2, is_interruptible=True, is_preemptible=False)
    assert json.loads(played) == {
        "type": "play",
        "source": "https://a.example/b.mp3",
        "loop": 2,
        "interruptible": True,
        "preemptible": False,
    }
    assert json.loads(twilio_relay.language(spoken="sv-SE")) == {"type": "language", "ttsLanguage": "sv-SE"}
    assert json.loads(twilio_relay.language(spoken="sv-SE", recognised="en-US")) == {
        "type": "language",
        "ttsLanguage": "sv-SE",
        "transcriptionLanguage": "en-US",
    }


@pytest.mark.parametrize("pressed", ["", "1w2", "a", "1" * 33])
def test_keys_that_no_telephone_has_are_not_pressed(pressed: str):
    with pytest.raises(ValueError, match="expected 1 to 32 keys"):
        twilio_relay.keys(pressed)


def test_the_document_connects_the_call_and_says_what_follows():
    document = ElementTree.fromstring(
        twiml.relay("wss://a.example/x", "https://a.example/after", {"language": "de-DE"})
    )
    connect = document.find("Connect")
    assert connect is not None and connect.get("action") == "https://a.example/after"
    relay = connect.find("ConversationRelay")
    assert relay is not None
    assert (relay.get("url"), relay.get("language")) == ("wss://a.example/x", "de-DE")


def test_the_document_names_the_languages_of_the_call():
    languages = {"es-ES": {"voice": "Pilar", "ttsProvider": "Amazon"}, "sv-SE": dict[str, str]()}
    text = twiml.relay("wss://a.example/x", "https://a.example/after", {}, languages)
    document = ElementTree.fromstring(text)
    elements = document.findall("Connect/ConversationRelay/Language")
    assert [element.attrib for element in elements] == [
        {"code": "es-ES", "voice": "Pilar", "ttsProvider": "Amazon"},
        {"code": "sv-SE"},
    ]
