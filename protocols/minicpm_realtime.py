"""MiniCPM-o realtime protocol: ``/v1/realtime?mode=audio|video``, with three events of the client.

It is the conversation of ``minicpm_duplex`` under other names, as that project's specification defines them.
The states of the specification are enforced: audio is accepted only after ``session.created``, and an event
in another state is refused as ``not_ready`` and changes nothing. By the specification a client in the queue
sends nothing, and begins with ``session.update`` when it has been placed. Real clients send it 100 ms after
they have connected, in the queue or not, and some once more when they are placed. So an early one is kept for
the conversation, and a later one takes its place until ``session.created``.

Every event is valid by ``schemas/minicpm_realtime.json``: it has no field that is null, and errors have the
codes of the specification.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.protocols.client_protocol import (
    SHUTDOWN,
    STOPPING,
    Action,
    Began,
    Begin,
    Faltered,
    Happening,
    LeaveSession,
    Message,
    ProtocolError,
    QueueUpdate,
    Ready,
    ReplyAudio,
    ReplyOver,
    Send,
    SessionEnded,
    SessionUpdate,
    UnitOver,
    decoded,
    parsed,
    text_of,
    written,
)
from parley.protocols.minicpm_duplex import (
    BYTES_PER_MS,
    HEARD,
    MOST_PROMPT_CHARS,
    MOST_VOICE_S,
    NO_ROOM,
    SAID,
    ChunkTracker,
    ClientPlayer,
    chunk_of,
    voice_in,
)

# Shorter chunks are refused, as by that server.
LEAST_SAMPLES = 4_000
REASONS = ("stopped", "timeout", "context_full", "server_shutdown", "error")
# Codes of the specification for faults of the client; every other fault is of the contents.
CLIENT_FAULTS = ("not_ready", "unknown_event", "missing_field", "invalid_payload")
# The specification has no event with words and no audio: one silent sample.
NO_AUDIO = bytes(4)
OUR_FAULT = ("service_unavailable", "queue_full", "worker_busy", "worker_connect_failed", "inference_error")


class MiniCpmRealtime:
    """MiniCPM-o realtime protocol, as a ``ClientProtocol``.

    Args:
        sees: true when pictures are accepted (``mode=video``).
        was_placed: the client has received ``session.queue_done`` already.
    """

    name = "realtime_ws"
    input_format, output_format = HEARD, SAID
    queues = True
    wants_units = True
    greets = False
    # In the results of its chunks, like an answer of the engine.
    speaks_announcements = True
    prompts = False
    announces = False
    lead_ms = 0

    def __init__(self, *, sees: bool, was_placed: bool = False) -> None:
        self._sees = sees
        self._session_id = ""
        self._book: ChunkTracker | None = None
        self._is_placed, self._is_queued, self._was_created = was_placed, False, False
        self._player = ClientPlayer()
        # The last ``session.update``.
        self._session: Message | None = None

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
        """Return the message for a refusal (``ClientProtocol.refused``)."""
        code = refusal.code if refusal.code in CLIENT_FAULTS else "invalid_payload"
        return [_error(code, str(refusal), kind="client_error")]

    def _update(self, event: Message) -> list[Action]:
        session = event.get("session")
        if not isinstance(session, dict):
            raise ProtocolError("session: missing", code="missing_field", param="session")
        if self._was_created:
            if session == self._session:
                return []
            raise ProtocolError("session.update is accepted only before session.created", code="not_ready")
        update = SessionUpdate(
            instructions=text_of(session, "instructions", most_chars=MOST_PROMPT_CHARS),
            llm_ref_audio=_voice(session, "ref_audio"),
            tts_ref_audio=_voice(session, "tts_ref_audio"),
        )
        self._session = session
        return [update, Begin()]

    def _append(self, event: Message) -> list[Action]:
        if self._book is None:
            raise ProtocolError(
                "audio is accepted only after session.created and while there is an engine", code="not_ready"
            )
        if event.get("video_frames") and not self._sees:
            raise ProtocolError(
                "video_frames: this session is mode=audio", code="invalid_payload", param="video_frames"
            )
        actions, long_ms = chunk_of(event, audio="audio", frames="video_frames")
        if long_ms * BYTES_PER_MS < LEAST_SAMPLES * 4:
            raise ProtocolError(
                f"audio: expected at least {LEAST_SAMPLES} samples", code="invalid_payload", param="audio"
            )
        if self._book.chunk(long_ms):
            actions.append(Send({"type": "response.listen", "kv_cache_length": 0}))
        return actions

    def _close(self, event: Message) -> list[Action]:
        return [LeaveSession(1000, "stopped")]

    # Messages to the client.

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the messages for an event of the call (``ClientProtocol.messages_for``)."""
        match happening:
            case Began(session_id):
                self._session_id = session_id
                return []
            case QueueUpdate():
                return self._queue(happening)
            case Ready(unit_ms, prompt_chars, by_arrival):
                is_first, self._was_created = not self._was_created, True
                self._book = ChunkTracker(unit_ms, by_arrival=by_arrival)
                created = {
                    "type": "session.created",
                    "session_id": self._session_id,
                    "prompt_length": prompt_chars,
                }
                return [created] if is_first else []
            case ReplyAudio(data, _, is_paced):
                if self._book is not None:
                    self._book.audio(data, is_paced=is_paced)
                return []
            case ReplyOver(_, True):
                if self._book is not None:
                    self._book.cut()
                return []
            case UnitOver():
                return self._unit(happening)
            case Faltered(message):
                self._book = None
                return [_error("inference_error", message)]
            case SessionEnded(reason, message):
                return self._over(reason, message)
            case _:
                return []

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Ignored: no message to this client repeats its instructions."""

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame (``ClientProtocol.goodbye``)."""
        if reason == SHUTDOWN:
            return STOPPING
        return (1013, reason) if reason in NO_ROOM or reason in OUR_FAULT else (1000, reason)

    def _queue(self, place: QueueUpdate) -> list[Message]:
        if place.position:
            facts: Message = {
                "position": place.position,
                "queue_length": place.length or place.position,
            }
            if place.wait_s is not None:
                facts["estimated_wait_s"] = max(0.0, place.wait_s)
            was_queued, self._is_queued = self._is_queued, True
            self._is_placed = False
            if was_queued:
                return [{"type": "session.queue_update", **facts}]
            return [{"type": "session.queued", "ticket_id": place.ticket_id, **facts}]
        if self._is_placed:
            return []
        self._is_placed, self._is_queued = True, False
        return [{"type": "session.queue_done"}]

    def _unit(self, unit: UnitOver) -> list[Message]:
        if self._book is None:
            return []
        answers: list[Message | None] = [*self._book.lost(unit.lost), self._book.unit(unit)]
        return [self._answered(answer, unit.kv_tokens) for answer in answers if answer is not None]

    def _answered(self, answer: Message, kv_tokens: int) -> Message:
        audio = self._player.fed(answer)
        if answer["is_listen"]:
            return {"type": "response.listen", "kv_cache_length": kv_tokens}
        return {
            "type": "response.output_audio.delta",
            "text": answer["text"],
            "audio": written(audio or NO_AUDIO),
            "end_of_turn": answer["end_of_turn"],
            "kv_cache_length": kv_tokens,
        }

    def _over(self, reason: str, message: str) -> list[Message]:
        closed = {"type": "session.closed", "reason": reason if reason in REASONS else "error"}
        if reason in ("stopped", "timeout", "context_full", "server_shutdown"):
            return [closed]
        no_room = "queue_full" if reason == "queue_full" else "service_unavailable"
        code = no_room if reason in NO_ROOM else "inference_error"
        return [_error(code, message or reason), closed]


_HANDLERS: Mapping[str, Callable[[MiniCpmRealtime, Message], list[Action]]] = {
    "session.update": MiniCpmRealtime._update,
    "input_audio_buffer.append": MiniCpmRealtime._append,
    "session.close": MiniCpmRealtime._close,
}


def _voice(session: Message, name: str) -> np.ndarray | None:
    """Return a reference voice from raw float32, the format that that server reads; None where there is none.

    Its specification says WAV instead, which is refused with a message of its own.
    """
    if not session.get(name):
        return None
    data = decoded(session[name], param=name, most_bytes=MOST_VOICE_S * HEARD.rate_hz * 4)
    if data[:4] == b"RIFF":
        raise ProtocolError(
            f"{name}: expected float32 samples at 16 kHz, not a file", code="invalid_payload", param=name
        )
    return voice_in(data, param=name)


def _error(code: str, message: str, *, kind: str = "server_error") -> Message:
    return {"type": "error", "error": {"code": code, "message": message, "type": kind}}
