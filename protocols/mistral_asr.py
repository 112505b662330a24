"""Messages of Mistral's realtime transcription (``/v1/audio/transcriptions/realtime``), in JSON.

The server opens a session, the client configures it before it sends audio, and the server sends the text in
pieces. After ``input_audio.flush`` it sends what is left of the text, and ``transcription.done``; the session
goes on. Messages of other kinds are left out.

Source: ``src/mistralai/extra/realtime`` of mistralai/client-python, and docs.mistral.ai. Pure.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from parley.core.errors import PeerError

# A piece of text, or the text of one voice.
MOST_BYTES = 262_144
MOST_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The server waits for the settings of the session."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Text that follows the text so far, spaces included."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDone:
    """All text of the audio before a flush was sent.

    Attributes:
        text: that text.
    """

    text: str


@dataclass(frozen=True, slots=True)
class SessionFailed:
    """The server reports an error."""

    message: str


TranscriptionMessage = SessionOpened | TextPiece | TextDone | SessionFailed


def settings_message(rate_hz: int, delay_ms: int | None) -> str:
    """Return the settings of a session.

    Args:
        rate_hz: rate of the audio, 16-bit mono PCM.
        delay_ms: time by which the text follows the audio; None: the server's own.
    """
    session: dict[str, object] = {"audio_format": {"encoding": "pcm_s16le", "sample_rate": rate_hz}}
    if delay_ms is not None:
        session["target_streaming_delay_ms"] = delay_ms
    return json.dumps({"type": "session.update", "session": session})


def append_message(pcm: bytes) -> str:
    """Return the message for audio."""
    return json.dumps({"type": "input_audio.append", "audio": base64.b64encode(pcm).decode()})


def flush_message() -> str:
    """Return the request for all text of the audio so far."""
    return json.dumps({"type": "input_audio.flush"})


def read_transcription_message(data: bytes | str) -> TranscriptionMessage | None:
    """Return a message of the server; None for a kind that is not used here.

    Raises:
        PeerError: this is no message of the protocol.
    """
    try:
        if len(data) > MOST_BYTES:
            raise ValueError("too long")
        fields = json.loads(data)
        if not isinstance(fields, Mapping):
            raise ValueError("no object")
        return _message(fields)
    except (ValueError, KeyError, RecursionError) as error:
        raise PeerError("the recogniser sent no message of Mistral's transcription") from error


def _message(fields: Mapping[object, object]) -> TranscriptionMessage | None:
    match fields["type"]:
        case "session.created":
            return SessionOpened()
        case "transcription.text.delta":
            return TextPiece(_text(fields["text"]))
        case "transcription.done":
            return TextDone(_text(fields["text"]))
        case "error":
            error = fields["error"]
            message = error.get("message") if isinstance(error, Mapping) else error
            # A list of faults, or a text.
            text = message if isinstance(message, str) else json.dumps(message)
            return SessionFailed(" ".join(text.split())[:MOST_REASON_CHARS])
        case str():
            return None
    raise ValueError("no kind")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")
    return value
