"""Full duplex of the MiniCPM-o demo server: ``/ws/duplex/{id}``.

Field names are those of its code. The client prepares the conversation once and then sends chunks of audio
(and pictures). Each chunk is answered by one ``result`` with the decision and the speech of the bot.

Where the engine's unit is as long as the client's chunk, the result leaves when the unit has been generated.
An engine of shorter units is ticked by the clock, and the result of a chunk holds all speech of its duration.
A client that needs lower latency sends shorter chunks. No output is held back longer than from the end of a
chunk to its result.

A reply seldom begins with a chunk. The audio of its first result is then shorter than the time until the next
result, and the client, which plays audio as it comes, would fall silent within the first words. So silence is
put before it, as that server does, up to the length of the chunk.

This server deliberately differs from that one, which does the following:

* drops the session for a message that is not JSON;
* takes a path of its own disk for a voice;
* lets a client pause without a limit;
* queues chunks without a bound;
* sends nothing when its worker dies;
* sends a second of zeros with every decision to listen.

Here silence is an empty ``audio_data``. ``interrupted`` in a result is an addition: the bot stopped before
its end, and the client drops the audio that it has not played yet. So is ``text``, a message with a typed
turn, which the deployment's own model answers.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.protocols.client_protocol import (
    SHUTDOWN,
    STOPPING,
    Action,
    Began,
    Begin,
    CancelResponse,
    Codec,
    Faltered,
    Format,
    Happening,
    LatencyMeasured,
    LeaveSession,
    Message,
    MustListen,
    Pause,
    Paused,
    Pictures,
    ProtocolError,
    QueueUpdate,
    Ready,
    ReplyAudio,
    ReplyOver,
    Resume,
    Resumed,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    Typed,
    UnitOver,
    decoded,
    parsed,
    samples_of,
    text_of,
    written,
)

HEARD = Format(Codec.FLOAT32, 16_000)
SAID = Format(Codec.FLOAT32, 24_000)
BYTES_PER_MS, SAID_BYTES_PER_MS = HEARD.rate_hz * 4 // 1000, SAID.rate_hz * 4 // 1000
MOST_CHUNK_MS, MOST_VOICE_S = 5_000, 60
MOST_PICTURES, MOST_PICTURE_BYTES = 4, 2_000_000
MOST_PROMPT_CHARS = 32_768
# Typed turn of a client; the page's field has the same bound.
MOST_TYPED_CHARS = 2_000
MOST_SLICES = 9
# Why a reference voice has no effect.
NOT_CLONED = "the bot speaks with the deployment's voice"
# Reasons after which a client may try again later.
NO_ROOM = (
    "queue_full",
    "no_worker",
    "too_large",
    "cancelled",
    "withdrawn",
    "stopping",
    "service_unavailable",
)
# Maximum number of unanswered chunks. A client that sends more has not read for a long time.
MOST_OWED = 256
# Fields of that server's DuplexConfig that reach its model, with sensible bounds.
SAMPLING: Mapping[str, tuple[float, float]] = {
    "temperature": (0.0, 2.0),
    "top_k": (0, 1_000),
    "top_p": (0.0, 1.0),
    "listen_prob_scale": (0.0, 100.0),
    "listen_top_k": (1, 1_000),
    "text_repetition_penalty": (0.1, 10.0),
    "text_repetition_window_size": (0, 8_192),
    "length_penalty": (0.1, 10.0),
}


# Result of a chunk in which no unit ended.
NOTHING: Mapping[str, Any] = {"is_listen": True, "text": "", "audio": b"", "is_paced": False}


class ClientPlayer:
    """Model of a client's player, which plays the audio of each result when it arrives.

    It prevents silence within a reply: where the audio that the client has would end before the next result,
    silence is put before the audio of this one. The end of a reply is not padded, nor is a backchannel. Where
    one reply ends in a result and the next one begins in it, the silence is between them. Speech of the
    deployment's voice comes at the pace of the results: only its first result is padded.
    """

    def __init__(self) -> None:
        # Audio that the client still has when the next result is due.
        self._held_ms = 0.0
        self._is_within = self._was_paced = False

    def fed(self, answer: Message) -> bytes:
        """Return the audio of a result, as it is sent."""
        audio: bytes = answer["audio"]
        if answer["interrupted"]:
            self._held_ms, self._is_within = 0.0, False
        begins_at: int | None = answer["begins_at"]
        if begins_at is not None:
            self._is_within = False
        ends = answer["is_over"] or answer["vote"] == "backchannel"
        if audio and not ends:
            missing_ms = answer["long_ms"] - self._held_ms - len(audio) / SAID_BYTES_PER_MS
            if not self._is_within:
                missing_ms += answer["margin_ms"]
            elif missing_ms <= answer["margin_ms"] or answer["is_paced"]:
                # That much was held in reserve from the beginning on; the end of paced speech is not known.
                missing_ms = 0.0
            padding = bytes(max(0, round(missing_ms)) * SAID_BYTES_PER_MS)
            audio = audio[: begins_at or 0] + padding + audio[begins_at or 0 :]
        self._is_within = not ends and (bool(audio) or (self._is_within and not self._was_paced))
        self._was_paced = answer["is_paced"]
        held_ms = self._held_ms + len(audio) / SAID_BYTES_PER_MS - answer["long_ms"]
        self._held_ms = max(0.0, held_ms)
        return audio


class ChunkTracker:
    """Assignment of the engine's units to the client's chunks.

    Args:
        unit_ms: unit length of the engine.
        by_arrival: its units are processed as soon as their audio has arrived; otherwise by the clock.
    """

    def __init__(self, unit_ms: int, *, by_arrival: bool) -> None:
        self._unit_ms = unit_ms
        self._by_arrival = by_arrival
        self._owed: deque[float] = deque(maxlen=MOST_OWED)
        # Units that each pending chunk still waits for, where units are processed on arrival.
        self._units_owed: deque[int] = deque(maxlen=MOST_OWED)
        self._last_ms = float(unit_ms)
        # Audio that has arrived and is in no unit yet; time of units that is in no result yet.
        self._heard_ms = self._passed_ms = 0.0
        self._audio: list[bytes] = []
        # Number of pieces in ``_audio`` when the last unit ended.
        self._of_before = 0
        self._texts: list[str] = []
        self._ends = self._was_cut = self._is_paced = False
        # In the result to come: a reply has ended, and nothing of another one followed; where one begins
        # after that, in bytes of its audio.
        self._is_over = False
        self._begins_at: int | None = None

    def chunk(self, long_ms: float) -> bool:
        """Register a chunk; return whether it is answered at once, because it completes no unit."""
        self._last_ms = long_ms
        if not self._by_arrival:
            self._owed.append(long_ms)
            return False
        self._heard_ms += long_ms
        units = int(self._heard_ms // self._unit_ms)
        if not units:
            return True
        self._heard_ms -= units * self._unit_ms
        self._units_owed.append(units)
        return False

    def paused(self) -> None:
        """Discard the audio that is in no unit yet."""
        self._heard_ms = 0.0
        self._units_owed.clear()

    def audio(self, data: bytes, *, is_paced: bool = False) -> None:
        """Add a piece of the bot's audio; see ``ReplyAudio``."""
        self._is_paced = is_paced
        if data and self._is_over:
            self._begins_at = sum(map(len, self._audio))
            self._is_over = False
        self._audio.append(data)

    def cut(self) -> None:
        """Drop the audio that has not been sent, and mark the next result as interrupted."""
        self._audio.clear()
        self._of_before = 0
        self._begins_at = None
        self._was_cut = self._is_over = True

    def lost(self, units: int) -> list[Message]:
        """Return the results of chunks that end with units which were lost: heard, but never processed."""
        answers: list[Message] = []
        while units and self._units_owed:
            taken = min(units, self._units_owed[0])
            units -= taken
            self._units_owed[0] -= taken
            if not self._units_owed[0]:
                self._units_owed.popleft()
                # The result holds the output of its first units. Later output belongs to the unit after the
                # lost ones.
                newer = self._audio[self._of_before :]
                del self._audio[self._of_before :]
                older_bytes, begins_at = sum(map(len, self._audio)), self._begins_at
                is_later = begins_at is not None and begins_at >= older_bytes
                if is_later:
                    # Another reply begins in the newer part: what is sent now ends with the earlier one.
                    self._begins_at, self._is_over = None, True
                answers.append(self._answer("listen", self._unit_ms))
                self._audio = newer
                if is_later and begins_at is not None:
                    self._begins_at = begins_at - older_bytes
        return answers

    def unit(self, unit: UnitOver) -> Message | None:
        """Register a unit that has ended; return the result of its chunk, or None before the chunk's last
        unit.
        """
        self._texts.append(unit.text)
        self._ends = self._ends or unit.end_of_turn
        self._is_over = self._is_over or unit.end_of_turn
        due_ms = float(self._unit_ms)
        if self._by_arrival:
            if self._units_owed:
                self._units_owed[0] -= 1
                if self._units_owed[0]:
                    self._of_before = len(self._audio)
                    return None
                self._units_owed.popleft()
        else:
            self._passed_ms += self._unit_ms
            due_ms = self._owed[0] if self._owed else self._last_ms
            # Only whole units count: a chunk may end in the middle of one.
            if self._passed_ms + self._unit_ms / 2 < due_ms:
                return None
            # The difference between the whole units and the chunk is carried over to the next one.
            self._passed_ms -= due_ms
            if self._owed:
                self._owed.popleft()
            elif not self._audio and not self._was_cut:
                # No chunk is pending, and there is nothing to send.
                self._texts, self._ends, self._is_over = [], False, False
                return None
        return self._answer(unit.vote, due_ms)

    def _answer(self, vote: str, long_ms: float) -> Message:
        audio, self._audio = b"".join(self._audio), []
        self._of_before = 0
        text, self._texts = "".join(self._texts), []
        ends, self._ends = self._ends, False
        was_cut, self._was_cut = self._was_cut, False
        is_over, self._is_over = self._is_over, False
        begins_at, self._begins_at = self._begins_at, None
        return {
            "is_listen": not audio and vote in ("listen", "yield"),
            "text": text,
            "audio": audio,
            "is_paced": self._is_paced and bool(audio),
            "end_of_turn": ends,
            "interrupted": was_cut,
            "is_over": is_over,
            "begins_at": begins_at,
            "vote": vote,
            "long_ms": long_ms,
            # A chunk may end in the middle of a unit: its result is up to half a unit early or late.
            "margin_ms": float(self._unit_ms) if long_ms % self._unit_ms else 0.0,
        }


class MiniCpmDuplex:
    """Full duplex of the MiniCPM-o demo server, as a ``ClientProtocol``.

    Args:
        wall_s: returns Unix time for the results.
    """

    name = "duplex_ws"
    input_format, output_format = HEARD, SAID
    queues = True
    wants_units = True
    greets = False
    # In the results of its chunks, like an answer of the engine.
    speaks_announcements = True
    prompts = False
    announces = False
    lead_ms = 0

    def __init__(self, wall_s: Callable[[], float]) -> None:
        self._wall_s = wall_s
        self._session_id = ""
        self._next_token: str | None = None
        self._recording_id: str | None = None
        # Further media of the caller that this deployment uses: "text", "pictures".
        self._takes: list[str] = []
        self._book: ChunkTracker | None = None
        self._is_prepared = self._is_paused = self._is_stopped = False
        self._is_queued = self._was_placed = self._was_ready = False
        self._chunks = 0
        self._player = ClientPlayer()
        # Fields of ``prepare`` without effect, with the reason; True where the engine imitates a voice.
        self._unused: list[str] = []
        self._clones = True

    # Messages of the client.

    def read(self, text: str, at_ms: int) -> Sequence[Action]:
        """Return the actions of a message (``ClientProtocol.read``)."""
        message = parsed(text)
        handler = _HANDLERS.get(message["type"])
        if handler is None:
            raise ProtocolError(
                f"Unknown message type: {message['type'][:64]}", code="unknown_event", param="type"
            )
        return handler(self, message)

    def refused(self, refusal: ProtocolError) -> Sequence[Message]:
        """Return the message for a refusal (``ClientProtocol.refused``)."""
        return [{"type": "error", "error": str(refusal), "code": refusal.code, "param": refusal.param}]

    def _prepare(self, message: Message) -> list[Action]:
        if self._is_prepared:
            raise ProtocolError(
                "the conversation has been prepared already", code="invalid_state", param="type"
            )
        update = update_of(message)
        if not self._clones:
            given = {"ref_audio_base64": update.llm_ref_audio, "tts_ref_audio_base64": update.tts_ref_audio}
            self._unused = [f"{name}: {NOT_CLONED}" for name, voice in given.items() if voice is not None]
        self._is_prepared = True
        return [update, Begin()]

    def _audio_chunk(self, message: Message) -> list[Action]:
        if self._book is None:
            raise ProtocolError(
                "chunks are accepted only once the engine is ready", code="not_ready", param="type"
            )
        if self._is_paused:
            raise ProtocolError(
                "the conversation is paused; resume it first", code="invalid_state", param="type"
            )
        actions, long_ms = chunk_of(message, audio="audio_base64", frames="frame_base64_list")
        if self._book.chunk(long_ms):
            actions.append(Send(self._result(NOTHING, None)))
        return actions

    def _pause(self, message: Message) -> list[Action]:
        if self._book is None or self._is_paused:
            raise ProtocolError("there is nothing to pause", code="invalid_state", param="type")
        timeout_s = message.get("timeout")
        if timeout_s is not None and not _is_number(timeout_s, 0.001, 86_400):
            raise ProtocolError("timeout: expected seconds", code="invalid_payload", param="timeout")
        self._is_paused = True
        return [Pause(None if timeout_s is None else max(1, int(timeout_s * 1000)))]

    def _resume(self, message: Message) -> list[Action]:
        if not self._is_paused:
            raise ProtocolError("the conversation is not paused", code="invalid_state", param="type")
        self._is_paused = False
        return [Resume()]

    def _stop(self, message: Message) -> list[Action]:
        self._is_stopped = True
        return [LeaveSession(1000, "stopped")]

    def _text(self, message: Message) -> list[Action]:
        if self._book is None:
            raise ProtocolError(
                "typed text is accepted only once the engine is ready", code="not_ready", param="type"
            )
        if self._is_paused:
            raise ProtocolError(
                "the conversation is paused; resume it first", code="invalid_state", param="type"
            )
        if "text" not in self._takes:
            raise ProtocolError("this engine takes no typed text", code="not_supported", param="text")
        text = message.get("text")
        if not isinstance(text, str) or not text.strip() or len(text) > MOST_TYPED_CHARS:
            raise ProtocolError(
                f"text: expected 1 to {MOST_TYPED_CHARS} characters", code="invalid_payload", param="text"
            )
        return [Typed(text.strip())]

    def _interrupt(self, message: Message) -> list[Action]:
        return [CancelResponse(), Send({"type": "interrupted"})]

    def _latency(self, message: Message) -> list[Action]:
        return [LatencyMeasured({name: value for name, value in message.items() if name != "type"})]

    def _diagnostic(self, message: Message) -> list[Action]:
        """Ignore a diagnostic message; that server logs it."""
        return []

    # Messages to the client.

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the messages for an event of the call (``ClientProtocol.messages_for``)."""
        match happening:
            case Began(session_id, facts):
                self._session_id = session_id
                self._next_token = facts.get("next_token")
                self._recording_id = facts.get("recording_session_id")
                self._takes = list(facts.get("takes", ()))
                return []
            case QueueUpdate():
                return self._queue(happening)
            case Ready(unit_ms, prompt_chars, by_arrival):
                return self._ready(unit_ms, prompt_chars, by_arrival=by_arrival)
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
                # Audio that was sent to the engine is lost. The next engine must be ready before more is
                # taken.
                self._book = None
                return [{"type": "error", "error": message, "code": "inference_error"}]
            case Paused(pause_ms):
                if self._book is not None:
                    self._book.paused()
                return [{"type": "paused", "timeout": pause_ms / 1000}]
            case Resumed():
                return [{"type": "resumed"}]
            case SessionEnded(reason, message):
                return self._over(reason, message)
            case _:
                return []

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set whether a reference voice is imitated; no message repeats instructions."""
        self._clones = voices.clones

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame (``ClientProtocol.goodbye``)."""
        if reason in ("stopped", "timeout"):
            return 1000, reason
        if reason in NO_ROOM:
            return 1013, "Queue full" if reason == "queue_full" else reason
        return STOPPING if reason == SHUTDOWN else (1011, reason)

    def _queue(self, place: QueueUpdate) -> list[Message]:
        if place.position:
            facts: Message = {
                "position": place.position,
                "estimated_wait_s": place.wait_s,
                "queue_length": place.length or place.position,
            }
            if self._is_queued:
                return [{"type": "queue_update", **facts}]
            self._is_queued, self._was_placed = True, False
            return [{"type": "queued", "ticket_id": place.ticket_id, **facts}]
        if self._was_placed:
            return []
        self._is_queued, self._was_placed = False, True
        return [{"type": "queue_done"}]

    def _ready(self, unit_ms: int, prompt_chars: int, *, by_arrival: bool) -> list[Message]:
        is_first, self._was_ready = not self._was_ready, True
        # An engine that takes over from one that failed has its own units.
        self._book = ChunkTracker(unit_ms, by_arrival=by_arrival)
        prepared = {
            "type": "prepared",
            "prompt_length": prompt_chars,
            "session_id": self._session_id,
            "unit_ms": unit_ms,
            "recording_session_id": self._recording_id,
            "takes": self._takes,
        }
        if self._next_token is not None:
            prepared["next_token"] = self._next_token
        if self._unused:
            prepared["unused"] = self._unused
        return [*self._queue(QueueUpdate(0)), *([prepared] if is_first else [])]

    def _unit(self, unit: UnitOver) -> list[Message]:
        if self._book is None:
            return []
        lost = [self._result(answer, None) for answer in self._book.lost(unit.lost)]
        answer = self._book.unit(unit)
        return lost if answer is None else [*lost, self._result(answer, unit)]

    def _result(self, answer: Mapping[str, Any], unit: UnitOver | None) -> Message:
        self._chunks += 1
        costs = unit.cost_ms if unit is not None else {}
        audio = answer["audio"] if answer is NOTHING else self._player.fed(dict(answer))
        return {
            "type": "result",
            "is_listen": answer["is_listen"],
            "text": answer["text"],
            "audio_data": written(audio) if audio else "",
            "end_of_turn": answer.get("end_of_turn", False),
            "interrupted": answer.get("interrupted", False),
            "current_time": self._chunks,
            "cost_llm_ms": costs.get("llm", 0.0),
            "cost_tts_prep_ms": 0.0,
            "cost_tts_ms": costs.get("tts", 0.0),
            "cost_token2wav_ms": 0.0,
            "cost_all_ms": costs.get("all", 0.0),
            "wall_clock_ms": unit.took_ms if unit is not None else 0.0,
            "n_tokens": unit.n_tokens if unit is not None else 0,
            "n_tts_tokens": unit.n_tts_tokens if unit is not None else 0,
            "kv_cache_length": unit.kv_tokens if unit is not None else 0,
            "server_send_ts": self._wall_s(),
        }

    def _over(self, reason: str, message: str) -> list[Message]:
        if reason == "stopped":
            return [{"type": "stopped", "session_id": self._session_id}] if self._is_stopped else []
        if reason == "timeout":
            return [{"type": "timeout", "reason": message or reason}]
        return [{"type": "error", "error": message or f"the conversation is over: {reason}", "code": reason}]


_HANDLERS: Mapping[str, Callable[[MiniCpmDuplex, Message], list[Action]]] = {
    "prepare": MiniCpmDuplex._prepare,
    "audio_chunk": MiniCpmDuplex._audio_chunk,
    "pause": MiniCpmDuplex._pause,
    "resume": MiniCpmDuplex._resume,
    "stop": MiniCpmDuplex._stop,
    "text": MiniCpmDuplex._text,
    "interrupt": MiniCpmDuplex._interrupt,
    "latency": MiniCpmDuplex._latency,
    "client_diagnostic": MiniCpmDuplex._diagnostic,
}


def chunk_of(message: Message, *, audio: str, frames: str) -> tuple[list[Action], float]:
    """Return the actions of a chunk, in order, and its duration in milliseconds.

    Raises:
        ProtocolError: it cannot be read, or is longer than the limit.
    """
    data = samples_of(message.get(audio), Codec.FLOAT32, param=audio, most_bytes=MOST_CHUNK_MS * BYTES_PER_MS)
    if not data:
        raise ProtocolError(f"{audio}: expected audio", code="invalid_payload", param=audio)
    pictures = pictures_of(message, frames)
    if not isinstance(message.get("force_listen", False), bool):
        raise ProtocolError(
            "force_listen: expected true or false", code="invalid_payload", param="force_listen"
        )
    _checked_slices(message.get("max_slice_nums"))
    actions: list[Action] = []
    if message.get("force_listen"):
        actions.append(MustListen())
    if pictures:
        actions.append(Pictures(pictures))
    return [*actions, Speech(data)], len(data) / BYTES_PER_MS


def pictures_of(message: Message, field: str) -> tuple[bytes, ...]:
    """Return the files of the pictures in a field of a chunk; none where it has no such field.

    Raises:
        ProtocolError: they cannot be read, or are too many or too large.
    """
    shown = message.get(field) or []
    if not isinstance(shown, list) or len(shown) > MOST_PICTURES:
        raise ProtocolError(
            f"{field}: expected at most {MOST_PICTURES} pictures", code="invalid_payload", param=field
        )
    return tuple(decoded(each, param=field, most_bytes=MOST_PICTURE_BYTES) for each in shown)


def update_of(message: Message) -> SessionUpdate:
    """Return the settings that ``prepare`` requests.

    Raises:
        ProtocolError: a setting is invalid or not supported.
    """
    if message.get("ref_audio_path"):
        raise ProtocolError(
            "ref_audio_path: paths on the server are not accepted; send ref_audio_base64",
            code="not_supported",
            param="ref_audio_path",
        )
    _checked_slices(message.get("max_slice_nums"))
    config = message.get("config") or {}
    if not isinstance(config, dict):
        raise ProtocolError("config: expected an object", code="invalid_payload", param="config")
    settings: dict[str, Any] = {}
    for name, (least, most) in SAMPLING.items():
        value = config.get(name)
        if value is None:
            continue
        if not _is_number(value, least, most):
            raise ProtocolError(
                f"config.{name}: expected {least:g} to {most:g}",
                code="invalid_payload",
                param=f"config.{name}",
            )
        settings[name] = value
    prompt = text_of(message, "system_prompt", default="", most_chars=MOST_PROMPT_CHARS)
    voice = _voice(message, "ref_audio_base64")
    for part in _content(message):
        if part.get("type") == "text":
            prompt = f"{prompt}\n{text_of(part, 'text', most_chars=MOST_PROMPT_CHARS)}".strip()
        elif voice is None:
            voice = _voice(part, "data")
    return SessionUpdate(
        instructions=prompt or None,
        llm_ref_audio=voice,
        tts_ref_audio=_voice(message, "tts_ref_audio_base64"),
        settings=settings,
    )


def _content(message: Message) -> list[Message]:
    content = message.get("system_content") or []
    if not isinstance(content, list) or len(content) > 16:
        raise ProtocolError("system_content: expected a list", code="invalid_payload", param="system_content")
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in ("text", "audio"):
            raise ProtocolError(
                "system_content: expected text and audio", code="invalid_payload", param="system_content"
            )
    return content


def voice_in(data: bytes, *, param: str) -> np.ndarray:
    """Return a reference voice from raw float32 at 16 kHz.

    Raises:
        ProtocolError: not whole or not finite samples.
    """
    if len(data) % 4 or not data:
        raise ProtocolError(
            f"{param}: expected float32 samples at 16 kHz", code="invalid_payload", param=param
        )
    samples = np.frombuffer(data, "<f4").astype(np.float32)
    if not np.isfinite(samples).all():
        raise ProtocolError(f"{param}: non-finite samples", code="invalid_payload", param=param)
    return np.clip(samples, -1, 1)


def _voice(message: Message, name: str) -> np.ndarray | None:
    if not message.get(name):
        return None
    data = decoded(message[name], param=name, most_bytes=MOST_VOICE_S * HEARD.rate_hz * 4)
    return voice_in(data, param=name)


def _checked_slices(value: object) -> None:
    if value is not None and not (_is_number(value, 1, MOST_SLICES) and isinstance(value, int)):
        raise ProtocolError(
            f"max_slice_nums: expected 1 to {MOST_SLICES}", code="invalid_payload", param="max_slice_nums"
        )


def _is_number(value: object, least: float, most: float) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and least <= value <= most  # type: ignore[operator]
