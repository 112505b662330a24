"""Half duplex of the MiniCPM-o server (``/ws/half_duplex``, and with pictures ``/ws/half_duplex_omni``).

The caller and the bot speak in turns.

Field names are those of that server's code and page. The following differences are intended:

* ``stop`` ends the conversation at any moment, also while the bot generates or speaks.
* ``timeout_s`` counts from ``prepare`` and is bounded by the deployment; ``prepared`` reports the effective
  value.
* A message that cannot be read is answered with ``error`` and does not end the conversation.

While the bot speaks, audio of the caller is discarded. Such a client mutes its microphone; the audio of a
client that does not would contain its own loudspeaker. ``generating`` mutes that page until ``turn_done``. It
is therefore sent only when words were recognised or the bot speaks, and every one is followed by its
``turn_done``.

Voice activity, sampling and the reference voice of ``prepare`` are set by the deployment. They are validated,
and ``unused`` of ``prepared`` names the fields without effect.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.core.passage_notes import CitedPassage, cited_as_json
from parley.protocols.client_protocol import (
    SHUTDOWN,
    STOPPING,
    Action,
    Began,
    Begin,
    CallerStarted,
    CallerStopped,
    CallerVoiceChanged,
    Codec,
    EndAfter,
    Format,
    Happening,
    LeaveSession,
    Message,
    Pictures,
    ProtocolError,
    QueueUpdate,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyCites,
    ReplyOver,
    ReplyWords,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    parsed,
    samples_of,
    written,
)
from parley.protocols.minicpm_duplex import NO_ROOM, pictures_of

INPUT = Format(Codec.FLOAT32, 16_000)
OUTPUT = Format(Codec.FLOAT32, 24_000)
DEFAULT_TIMEOUT_S = 300
# The page sends half a second at a time. Ten seconds are parsed and decoded in under 3 ms, hence on the loop.
MOST_AUDIO_BYTES = 640_000
# JSON of many small parts takes 25 ms for a million characters. Half a minute of a reference voice is longer,
# but a single part.
MOST_MESSAGE_CHARS = 2_600_000
MOST_CHARS, MOST_ITEMS = 32_768, 64
# Field with the pictures of a chunk, and the parameter of the refusal where a deployment uses none.
FRAMES, UNSEEN_PARAM = "frame_base64_list", "input_image"
# A reference voice is not decoded: it has no effect here.
MOST_VOICE_CHARS = 2_560_000


class _Given(BaseModel):
    # The pages send more than the server reads, and null where a field of a form is empty.
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class ContentItem(_Given):
    """Item of the system content: instructions for the bot, or a reference voice."""

    type: str
    text: str | None = Field(None, max_length=MOST_CHARS)
    data: str | None = Field(None, max_length=MOST_VOICE_CHARS)


class VadConfig(_Given):
    """Voice activity settings. They are validated and have no effect."""

    threshold: float | None = Field(None, ge=0, le=1)
    min_speech_duration_ms: int | None = Field(None, ge=0, le=60_000)
    min_silence_duration_ms: int | None = Field(None, ge=0, le=60_000)
    speech_pad_ms: int | None = Field(None, ge=0, le=60_000)


class HalfDuplexGeneration(_Given):
    """Generation settings. They are validated and have no effect."""

    max_new_tokens: int | None = Field(None, ge=1, le=1_000_000)
    length_penalty: float | None = Field(None, ge=0, le=100)
    temperature: float | None = Field(None, ge=0, le=100)


class HalfDuplexSpeech(_Given):
    """Speech output. When it is disabled, the words are sent as they would have been spoken."""

    enabled: bool | None = True


class SessionConfig(_Given):
    """Time limit of the whole conversation."""

    timeout_s: float | None = Field(None, gt=0, le=1e9)


class HalfDuplexConfig(_Given):
    """Field ``config`` of ``prepare``."""

    vad: VadConfig | None = None
    generation: HalfDuplexGeneration | None = None
    tts: HalfDuplexSpeech | None = None
    session: SessionConfig | None = None


class Prepare(_Given):
    """Message ``prepare``."""

    system_content: tuple[ContentItem, ...] | None = Field(None, max_length=MOST_ITEMS)
    config: HalfDuplexConfig | None = None


class HalfDuplex:
    """Half duplex of the MiniCPM-o server, as a ``ClientProtocol``.

    Args:
        longest_s: upper bound of ``timeout_s``.
        sees: a chunk may have pictures. Where the deployment uses none, the first ones are refused by an
            ``error``, and later ones are left out.
    """

    name = "half_duplex"
    queues = True
    wants_units = False
    greets = False
    # Its page plays a turn of the bot that no words of the caller came before.
    speaks_announcements = True
    # Nothing is said to a page that has not prepared the conversation.
    prepares = True
    prompts = False
    announces = False
    lead_ms = 0
    input_format = INPUT
    output_format = OUTPUT

    def __init__(self, *, longest_s: int, sees: bool = False) -> None:
        self._longest_s, self._sees = longest_s, sees
        self._session_id = ""
        self._recording_id: str | None = None
        self._prepared: Message | None = None
        self._prepared_ms = 0
        self._speaks = self._takes_instructions = True
        self._waits = self._was_let_in = False
        # The caller's turn: start of the present voice, milliseconds of speech, whether the turn is over and
        # has words.
        self._voice_ms: int | None = None
        self._speech_ms = 0
        self._turn_is_over = self._has_words = False
        # The bot's turn: whether it was announced to the client, and whether it is being spoken.
        self._was_announced = self._is_speaking = False
        self._chunks = self._turns = 0
        self._delta = self._text = ""
        # The reply that was last reported to rest on passages, and these.
        self._cited: tuple[str, tuple[CitedPassage, ...]] = ("", ())

    # Messages of the client.

    def read(self, text: str, at_ms: int) -> Sequence[Action]:
        """Return the actions of a message (``ClientProtocol.read``)."""
        if len(text) > MOST_MESSAGE_CHARS:
            raise ProtocolError(f"the message is over {MOST_MESSAGE_CHARS} characters", code="too_large")
        message = parsed(text)
        match message["type"]:
            case "prepare":
                return self._prepare(message, at_ms)
            case "audio_chunk":
                return self._hear(message)
            case "stop":
                return [LeaveSession(1000, "stopped")]
            case other:
                raise ProtocolError(
                    f"unknown message type {other[:64]!r}", code="unknown_event", param="type"
                )

    def _prepare(self, message: Message, at_ms: int) -> list[Action]:
        if self._prepared is not None:
            raise ProtocolError(
                "the conversation has been prepared already", code="already_prepared", param="type"
            )
        try:
            given = Prepare.model_validate(message)
        except ValidationError as error:
            raise refusal_of(error) from error
        parts, unused = [], []
        for index, item in enumerate(given.system_content or ()):
            where = f"system_content[{index}]"
            if item.type == "text":
                parts.append(item.text or "")
                if item.text and not self._takes_instructions:
                    unused.append(f"{where}: the prompt is the deployment's")
            elif item.type != "audio":
                raise ProtocolError(
                    f"{where}: {item.type[:32]!r} is not supported here", code="unsupported", param=where
                )
            elif item.data:
                unused.append(f"{where}: the bot speaks with the deployment's voice")
        config = given.config or HalfDuplexConfig()
        for name in ("vad", "generation"):
            if getattr(config, name) is not None:
                unused.append(f"config.{name}: as the deployment has it")
        asked_s = config.session.timeout_s if config.session is not None else None
        timeout_s = min(asked_s or DEFAULT_TIMEOUT_S, self._longest_s)
        self._speaks = config.tts is None or config.tts.enabled is not False
        self._prepared_ms = at_ms
        self._prepared = {"type": "prepared", "timeout_s": round(timeout_s, 3), "unused": unused}
        instructions = "\n\n".join(part.strip() for part in parts if part.strip())
        actions: list[Action] = [
            SessionUpdate(instructions=instructions or None),
            Begin(),
            EndAfter(max(1, round(timeout_s * 1000))),
        ]
        if self._session_id:
            actions.append(Send(self._with_session(self._prepared)))
        return actions

    def _hear(self, message: Message) -> list[Action]:
        if self._prepared is None:
            raise ProtocolError("prepare comes first", code="not_prepared", param="type")
        data = samples_of(
            message.get("audio_base64"), Codec.FLOAT32, param="audio_base64", most_bytes=MOST_AUDIO_BYTES
        )
        pictures = pictures_of(message, FRAMES) if self._sees else ()
        shown: list[Action] = [Pictures(pictures)] if pictures else []
        return shown if self._is_speaking else [Speech(data), *shown]

    def refused(self, refusal: ProtocolError) -> Sequence[Message]:
        """Return the message for a refusal (``ClientProtocol.refused``)."""
        if refusal.param == UNSEEN_PARAM:
            self._sees = False
        return [{"type": "error", "error": str(refusal), "code": refusal.code}]

    # Messages to the client.

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the messages for an event of the call (``ClientProtocol.messages_for``)."""
        match happening:
            case Began(session_id, facts):
                self._recording_id = facts.get("recording_session_id")
                return self._begun(session_id)
            case QueueUpdate():
                return self._queue(happening)
            case CallerVoiceChanged(is_on, late_ms):
                self._note_voice(is_on, at_ms - late_ms)
                return [] if self._is_speaking else [{"type": "vad_state", "speaking": is_on}]
            case CallerStarted():
                self._turn_is_over = False
            case CallerStopped():
                self._turn_is_over = True
                return self._understood(at_ms)
            case RecognisedWords(text, is_final) if is_final and text.strip():
                self._has_words = True
                return self._understood(at_ms)
            case ReplyBegan():
                return self._begin(at_ms)
            case ReplyAudio(data, duration_ms) if self._is_speaking:
                return self._audio(data, duration_ms)
            case ReplyWords(text) if self._is_speaking:
                self._say(text)
                return [] if self._speaks else [self._chunk()]
            case ReplyCites(reply_id, passages):
                self._cited = (reply_id, passages)
            case ReplyOver(reply_id):
                return self._end(reply_id)
            case SessionEnded(reason, message):
                return self._over(reason, message, at_ms)
        return []

    def _begun(self, session_id: str) -> list[Message]:
        self._session_id = session_id
        messages = [] if self._waits else self._let_in()
        if self._prepared is not None:
            messages.append(self._with_session(self._prepared))
        return messages

    def _with_session(self, prepared: Message) -> Message:
        ids: Message = {"session_id": self._session_id}
        if self._recording_id is not None:
            ids["recording_session_id"] = self._recording_id
        return {"type": prepared["type"], **ids, **prepared}

    def _queue(self, queue: QueueUpdate) -> list[Message]:
        if queue.position <= 0:
            self._waits = False
            return self._let_in()
        place = {"position": queue.position, "estimated_wait_s": queue.wait_s, "queue_length": queue.length}
        if self._waits:
            return [{"type": "queue_update", **place}]
        self._waits = True
        return [{"type": "queued", **place, "ticket_id": queue.ticket_id}]

    def _let_in(self) -> list[Message]:
        if self._was_let_in:
            return []
        self._was_let_in = True
        return [{"type": "queue_done"}]

    def _note_voice(self, is_on: bool, at_ms: int) -> None:
        if is_on:
            self._voice_ms = at_ms if self._voice_ms is None else self._voice_ms
        elif self._voice_ms is not None:
            self._speech_ms += max(0, at_ms - self._voice_ms)
            self._voice_ms = None

    def _understood(self, at_ms: int) -> list[Message]:
        if not (self._turn_is_over and self._has_words) or self._was_announced:
            return []
        return self._announce(at_ms)

    def _announce(self, at_ms: int) -> list[Message]:
        if self._voice_ms is not None:
            self._note_voice(False, at_ms)
        speech_ms, self._speech_ms = self._speech_ms, 0
        self._turn_is_over = self._has_words = False
        self._was_announced = True
        return [{"type": "generating", "speech_duration_ms": speech_ms}]

    def _begin(self, at_ms: int) -> list[Message]:
        messages = self._end() if self._is_speaking else []
        if not self._was_announced:
            messages += self._announce(at_ms)
        self._is_speaking = True
        self._chunks = 0
        self._delta = self._text = ""
        return messages

    def _say(self, text: str) -> None:
        delta = f" {text}" if self._text else text
        self._delta += delta
        self._text += delta

    def _audio(self, data: bytes, duration_ms: float) -> list[Message]:
        return [self._chunk(data, duration_ms)] if self._speaks else []

    def _chunk(self, data: bytes = b"", duration_ms: float = 0.0, *, is_final: bool = False) -> Message:
        delta, self._delta = self._delta, ""
        chunk = {
            "type": "chunk",
            "chunk_index": self._chunks,
            "text_delta": delta or None,
            "audio_data": written(data) if data else None,
            "audio_sample_rate": OUTPUT.rate_hz,
            "is_final": is_final,
            "duration_ms": round(duration_ms, 1),
        }
        self._chunks += 1
        return chunk

    def _end(self, reply_id: str = "") -> list[Message]:
        if not self._is_speaking:
            return []
        self._is_speaking = self._was_announced = False
        self._turns += 1
        last = self._chunk(is_final=True)
        done: Message = {"type": "turn_done", "turn_index": self._turns, "text": self._text}
        cited_by, passages = self._cited
        if passages and cited_by == reply_id:
            done["passages"] = cited_as_json(passages)
        return [last, done]

    def _over(self, reason: str, message: str, at_ms: int) -> list[Message]:
        messages = self._end()
        if reason == "timeout":
            messages.append({"type": "timeout", "elapsed_s": round((at_ms - self._prepared_ms) / 1000, 1)})
        elif reason != "stopped":
            messages.append({"type": "error", "error": message or f"the conversation is over: {reason}"})
        return messages

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set whether the client's instructions are followed (``ClientProtocol.permit``)."""
        self._takes_instructions = instructions

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame (``ClientProtocol.goodbye``)."""
        if reason == SHUTDOWN:
            return STOPPING
        if reason in NO_ROOM:
            return 1013, reason
        return (1011, reason) if reason == "error" else (1000, reason)


def refusal_of(error: ValidationError) -> ProtocolError:
    """Return the refusal of a message that failed validation. Its text holds no input of the client."""
    faults = [
        (".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors(include_input=False)[:5]
    ]
    text = "; ".join(f"{where}: {what}" if where else what for where, what in faults)
    return ProtocolError(text, code="invalid_payload", param=faults[0][0] or None)
