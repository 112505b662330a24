"""Unmute's protocol: OpenAI's realtime protocol with older names; the bot speaks first.

Audio is Opus in Ogg. Only event types that Unmute's front end supports are sent, because it stops at others.
Information for which it has no event is sent in one that it has: a caller in the queue receives a warning.
Words are sent when they are spoken, without surrounding spaces, which the front end adds.

The conversation so far goes with ``unmute.additional_outputs`` whenever a turn of either side is over, and
before the event that says so to a client: its load test reads the last message of the conversation when
``response.audio.done`` comes, and the caller's words when ``response.created`` does. Words that are
recognised after the end of their turn still belong to it.

Source: ``unmute/openai_realtime_api_events.py`` and ``frontend/src/app/Unmute.tsx`` of that project.
"""

import secrets
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parley.core.call_choices import NO_VOICES, OWN_VOICE, VoiceNames
from parley.protocols.client_protocol import (
    SHUTDOWN,
    STOPPING,
    Action,
    Began,
    Begin,
    CallerStarted,
    CallerStopped,
    Codec,
    Format,
    Happening,
    Message,
    ProtocolError,
    QueueUpdate,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    decoded,
    parsed,
    text_of,
    written,
)

OPUS = Format(Codec.OGG_OPUS, 24_000)
# A second of Opus is some 4 kB.
MOST_AUDIO_BYTES = 65_536
MOST_CHARS = 32_768
# Messages of the history that the front end displays for developers.
MOST_SHOWN = 64
# Characters of Unmute, for which its own server has prompts. The prompts here are our own wording.
CHARACTERS: Mapping[str, str] = {
    "smalltalk": "Have a friendly, light conversation about everyday things. Ask back now and then.",
    "guess_animal": "Play a guessing game: think of an animal, let the person ask about it, and say whether "
    "they are right.",
    "quiz_show": "Be the host of a quiz: ask one question at a time, say whether the answer is right, and "
    "keep the score.",
    "news": "Talk about what is in the news, as far as you know, and say when you do not know.",
    "unmute_explanation": "Explain how you work: speech is recognised, a language model answers, and a voice "
    "speaks.",
}


class Unmute:
    """Unmute's protocol, as a ``ClientProtocol``."""

    name = "unmute"
    input_format = output_format = OPUS
    # The client streams audio from the first moment: speech before a line is free would be lost.
    queues = False
    wants_units = False
    greets = True
    prompts = True
    announces = False
    lead_ms = 0
    # Its front end asks the caller, and each session.update has the answer.
    asks_consent = True

    def __init__(self) -> None:
        self._voice = OWN_VOICE
        self._voices = NO_VOICES
        # Id of the reference voice that the engine imitates; empty for none.
        self._reference = ""
        self._has_begun = False
        self._has_streamed = False
        # Messages of the bot's present reply and of the caller's last turn.
        self._reply: Message | None = None
        self._turn: Message | None = None
        self._is_turn_over = True
        self._shown: deque[Message] = deque(maxlen=MOST_SHOWN)
        self._caller_since_ms = 0
        self._takes_instructions = True

    # Messages of the client.

    def read(self, text: str, at_ms: int) -> Sequence[Action]:
        """Return the actions of an event (``ClientProtocol.read``)."""
        event = parsed(text)
        handler = _HANDLERS.get(event["type"])
        if handler is None:
            raise ProtocolError(
                f"there is no client event {event['type'][:64]!r}", code="unknown_event", param="type"
            )
        return handler(self, event)

    def refused(self, refusal: ProtocolError) -> Sequence[Message]:
        """Return the error event for a refusal (``ClientProtocol.refused``)."""
        return [_error("invalid_request_error", refusal.code, str(refusal), refusal.param)]

    def _update(self, event: Message) -> list[Action]:
        session = event.get("session")
        if not isinstance(session, dict):
            raise ProtocolError("session: missing", code="missing_field", param="session")
        if not isinstance(session.get("allow_recording"), bool):
            param = "session.allow_recording"
            raise ProtocolError(f"{param}: expected true or false", code="missing_field", param=param)
        instructions = _instructions(session.get("instructions"))
        warnings = self._choose_voice(session)
        self._has_begun = True
        updated = {
            "instructions": session.get("instructions") if self._takes_instructions else None,
            "voice": self._voice,
            "allow_recording": session["allow_recording"],
        }
        return [
            SessionUpdate(
                instructions=instructions,
                voice=None if session.get("voice") is None or self._reference else self._voice,
                reference_voice=self._reference or None,
                allow_recording=session["allow_recording"],
            ),
            Begin(),
            *warnings,
            Send(_event("session.updated", session=updated)),
        ]

    def _choose_voice(self, session: Message) -> list[Action]:
        """Take the voice of an update; return the warning about an unknown one, in place of which it speaks.

        The front end sends a voice of its own server until it has read the list of this one.
        """
        if session.get("voice") is None:
            return []
        name = text_of(session, "voice", most_chars=256)
        if name == self._voice:
            return []
        is_reference = name in self._voices.references
        if (self._has_begun or self._has_streamed) and (is_reference or self._reference):
            # The engine is prepared with the voice that it imitates.
            return [_warning("voice_set", f"A conversation keeps its voice, {self._voice!r} goes on.")]
        found = name if is_reference else self._voices.find(name)
        self._voice, self._reference = found or OWN_VOICE, name if is_reference else ""
        if found is not None:
            return []
        known = ", ".join((*self._voices.names, *self._voices.references))
        text = f"There is no voice {name[:64]!r} here (known: {known}), {OWN_VOICE!r} speaks instead."
        return [_warning("unknown_voice", text)]

    def _append(self, event: Message) -> list[Action]:
        data = decoded(event.get("audio"), param="audio", most_bytes=MOST_AUDIO_BYTES)
        if not self._has_streamed and not (len(data) > 5 and data[:4] == b"OggS" and data[5] & 2):
            raise ProtocolError(
                "audio: the first page does not begin an Ogg stream of Opus",
                code="invalid_payload",
                param="audio",
            )
        self._has_streamed = True
        return [Speech(data)] if self._has_begun else [Begin(), Speech(data)]

    # Messages to the client.

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the events for an event of the call (``ClientProtocol.messages_for``)."""
        match happening:
            case Began():
                return []
            case QueueUpdate(position) if position:
                text = f"Every line is taken, you are number {position} in the queue."
                return [_error("warning", "queued", text)]
            case CallerStarted():
                self._caller_since_ms = at_ms
                if self._is_turn_over:
                    self._turn, self._is_turn_over = None, False
                return [_event("input_audio_buffer.speech_started")]
            case CallerStopped():
                self._is_turn_over = True
                return [_event("input_audio_buffer.speech_stopped"), self._outputs()]
            case RecognisedWords(text, True):
                return self._words(text)
            case ReplyBegan():
                return self._begin()
            case ReplyAudio(data):
                return [_event("response.audio.delta", delta=written(data))]
            case ReplyWords(text):
                return self._said(text)
            case ReplyOver(_, was_cut):
                return self._end(was_cut=was_cut)
            case SessionEnded(reason, message) if reason != "stopped":
                return [_error("fatal", reason, message or f"the conversation is over: {reason}")]
            case _:
                return []

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set whether the client's instructions are followed, and its voices (``ClientProtocol.permit``)."""
        self._takes_instructions, self._voices = instructions, voices

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame (``ClientProtocol.goodbye``)."""
        if reason == SHUTDOWN:
            return STOPPING
        return (1000, reason) if reason in ("stopped", "timeout") else (1011, reason)

    def _words(self, text: str) -> list[Message]:
        if self._turn is None:
            self._turn = self._show("user")
        _add(self._turn, text)
        start_s = self._caller_since_ms / 1000
        name = "conversation.item.input_audio_transcription.delta"
        words = _event(name, delta=text, start_time=start_s)
        return [words, self._outputs()] if self._is_turn_over else [words]

    def _begin(self) -> list[Message]:
        messages = self._end(was_cut=False) if self._reply is not None else []
        history = self._history()
        self._reply = self._show("assistant")
        response = {
            "object": "realtime.response",
            "status": "in_progress",
            "voice": self._voice,
            "chat_history": history,
        }
        return [*messages, _event("response.created", response=response)]

    def _said(self, text: str) -> list[Message]:
        if self._reply is None:
            return []
        _add(self._reply, text)
        return [
            _event("unmute.response.text.delta.ready", delta=text),
            _event("response.text.delta", delta=text),
        ]

    def _end(self, *, was_cut: bool) -> list[Message]:
        if self._reply is None:
            return []
        text, self._reply = self._reply["content"], None
        cut = [_event("unmute.interrupted_by_vad")] if was_cut else []
        return [*cut, _event("response.text.done", text=text), self._outputs(), _event("response.audio.done")]

    def _show(self, role: str) -> Message:
        """Append a message to the conversation that the client is shown; return it, still without words."""
        message = {"role": role, "content": ""}
        self._shown.append(message)
        return message

    def _history(self) -> list[Message]:
        """Return the conversation so far, without turns that have no words."""
        return [dict(message) for message in self._shown if message["content"]]

    def _outputs(self) -> Message:
        return _event("unmute.additional_outputs", args={"chat_history": self._history(), "debug_dict": {}})


_HANDLERS: Mapping[str, Callable[[Unmute, Message], list[Action]]] = {
    "session.update": Unmute._update,
    "input_audio_buffer.append": Unmute._append,
}


def _instructions(given: object) -> str | None:
    """Return the instructions for the bot: a text of the client, or the prompt of one of its characters."""
    if given is None:
        return None
    param = "session.instructions"
    if not isinstance(given, dict):
        raise ProtocolError(f"{param}: expected an object with a type", code="invalid_payload", param=param)
    kind = given.get("type")
    if kind == "constant":
        text = text_of(given, "text", most_chars=MOST_CHARS)
    elif isinstance(kind, str) and kind in CHARACTERS:
        text = CHARACTERS[kind]
    else:
        known = ", ".join(("constant", *CHARACTERS))
        raise ProtocolError(
            f"{param}.type: expected one of {known}", code="invalid_payload", param=f"{param}.type"
        )
    language = given.get("language")
    if isinstance(language, str) and language:
        text += f"\nSpeak this language: {language[:32]}."
    return text


def _add(message: Message, text: str) -> None:
    """Append words to a message."""
    message["content"] = f"{message['content']} {text}".strip()


def _event(type_: str, **fields: Any) -> Message:
    return {"type": type_, "event_id": f"event_{secrets.token_hex(10)}", **fields}


def _warning(code: str, message: str) -> Send:
    """Return a warning about the voice, which the front end logs."""
    return Send(_error("warning", code, message, "session.voice"))


def _error(kind: str, code: str, message: str, param: str | None = None) -> Message:
    error = {"type": kind, "code": code, "message": message, "param": param, "details": None}
    return _event("error", error=error)
