"""Messages of Twilio's ConversationRelay: a phone call as text, recognised and spoken by Twilio. Pure.

Input: text messages of Twilio. Output: an ``Event``, or a ``ProtocolError`` with the reason; a message of an
unknown type is none of either, because Twilio adds types. The first message is ``setup``. A caller's turn is
a ``prompt`` that is the ``last`` one; partial ones come where they were requested. ``interrupt`` says how
much of the bot's speech the caller has heard.

Source: twilio.com/docs/voice/conversationrelay/websocket-messages.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from parley.protocols.client_protocol import ProtocolError, json_object

# An hour of speech without a pause has 60,000 characters.
MOST_MESSAGE_CHARS, MOST_PROMPT_CHARS, MOST_ID_CHARS = 65_536, 8_000, 200
DIGITS, MOST_DIGITS = frozenset("0123456789*#"), 32
# Twilio passes this text on with the request that follows the call; it takes 64 KB.
MOST_HANDOFF_CHARS = 4_000
# Value of ``transcriptionLanguage`` with which Twilio recognises whichever language is spoken.
ANY_LANGUAGE = "multi"


@dataclass(frozen=True, slots=True)
class RelayBegan:
    """The call is connected.

    Attributes:
        session_id: of Twilio; the same when it connects again.
        call_sid: of the phone call.
    """

    session_id: str
    call_sid: str


@dataclass(frozen=True, slots=True)
class Prompted:
    """The caller has said something.

    Attributes:
        text: as recognised.
        language: that was recognised, as Twilio names it.
        is_last: the turn is over.
    """

    text: str
    language: str
    is_last: bool


@dataclass(frozen=True, slots=True)
class Pressed:
    """The caller has pressed a key."""

    digit: str


@dataclass(frozen=True, slots=True)
class SpeechInterrupted:
    """The caller has interrupted the bot's speech.

    Attributes:
        heard: words of the bot until then.
        after_ms: duration of the speech until then.
    """

    heard: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class RelayFault:
    """Twilio could not use a message, or a part of it failed."""

    description: str


RelayEvent = RelayBegan | Prompted | Pressed | SpeechInterrupted | RelayFault


def read(message: str) -> RelayEvent | None:
    """Return the event of a message; None for one of an unknown type.

    Raises:
        ProtocolError: it cannot be read.
    """
    if len(message) > MOST_MESSAGE_CHARS:
        raise ProtocolError(f"the message has over {MOST_MESSAGE_CHARS} characters", code="too_large")
    given = json_object(message)
    match given.get("type"):
        case "setup":
            return RelayBegan(_text(given, "sessionId"), _text(given, "callSid"))
        case "prompt":
            text = _text(given, "voicePrompt", most_chars=MOST_PROMPT_CHARS, may_be_empty=True)
            language = _text(given, "lang", may_be_empty=True)
            return Prompted(text.strip(), language, is_last=given.get("last", True) is True)
        case "dtmf":
            digit = _text(given, "digit")
            if digit not in DIGITS:
                raise ProtocolError("digit: expected a key", code="invalid_value", param="digit")
            return Pressed(digit)
        case "interrupt":
            heard = _text(given, "utteranceUntilInterrupt", most_chars=MOST_MESSAGE_CHARS, may_be_empty=True)
            return SpeechInterrupted(heard, _milliseconds(given))
        case "error":
            return RelayFault(_text(given, "description", most_chars=MOST_MESSAGE_CHARS, may_be_empty=True))
        case str():
            return None
    raise ProtocolError("type: expected a text", code="invalid_value", param="type")


def token(
    text: str, *, is_last: bool, language: str | None = None, is_interruptible: bool | None = None
) -> str:
    """Return the message with a piece of what the bot says; an empty last one ends it.

    Args:
        text: the piece.
        is_last: it is the end of what is said.
        language: in which it is spoken; None for that of the call.
        is_interruptible: the caller's voice ends it; None for the setting of the call.
    """
    spoken: dict[str, object] = {} if language is None else {"lang": language}
    spoken |= {} if is_interruptible is None else {"interruptible": is_interruptible}
    return json.dumps({"type": "text", "token": text, "last": is_last, **spoken})


def play(source: str, *, loop: int, is_interruptible: bool, is_preemptible: bool) -> str:
    """Return the message that plays a recording, after what is being spoken.

    Args:
        source: address from which Twilio fetches it.
        loop: number of times that it is played.
        is_interruptible: the caller's voice ends it.
        is_preemptible: the next text or recording ends it; else that waits for its end.
    """
    options = {"loop": loop, "interruptible": is_interruptible, "preemptible": is_preemptible}
    return json.dumps({"type": "play", "source": source, **options})


def language(*, spoken: str, recognised: str | None = None) -> str:
    """Return the message that switches the language of the call.

    Args:
        spoken: language in which Twilio speaks from now on.
        recognised: language that it recognises from now on; None: the same as before.
    """
    heard = {} if recognised is None else {"transcriptionLanguage": recognised}
    return json.dumps({"type": "language", "ttsLanguage": spoken, **heard})


def keys(pressed: str) -> str:
    """Return the message that presses keys in the call.

    Raises:
        ValueError: there are none, too many, or others than 0 to 9, * and #.
    """
    if not 0 < len(pressed) <= MOST_DIGITS or not DIGITS.issuperset(pressed):
        raise ValueError(f"expected 1 to {MOST_DIGITS} keys of 0 to 9, * and #")
    return json.dumps({"type": "sendDigits", "digits": pressed})


def end(handoff: Mapping[str, object] | None = None) -> str:
    """Return the message that ends the session.

    Args:
        handoff: comes back with the request that asks how the call goes on.
    """
    if handoff is None:
        return json.dumps({"type": "end"})
    return json.dumps({"type": "end", "handoffData": json.dumps(handoff)[:MOST_HANDOFF_CHARS]})


def _text(
    given: Mapping[str, object], name: str, *, most_chars: int = MOST_ID_CHARS, may_be_empty: bool = False
) -> str:
    value = given.get(name, "" if may_be_empty else None)
    if not isinstance(value, str) or not (value or may_be_empty) or len(value) > most_chars:
        raise ProtocolError(
            f"{name}: expected a text of at most {most_chars} characters", code="invalid_value", param=name
        )
    return value


def _milliseconds(given: Mapping[str, object]) -> int:
    value = given.get("durationUntilInterruptMs", 0)
    # Twilio has documented it as a number and as a text.
    if isinstance(value, str) and value.isdecimal() and len(value) < 12:
        value = int(value)
    if type(value) is not int or value < 0:
        raise ProtocolError(
            "durationUntilInterruptMs: expected whole milliseconds",
            code="invalid_value",
            param="durationUntilInterruptMs",
        )
    return value
