"""Protocol-independent messages between a session and a client protocol adapter.

A client protocol (for example ``protocols.openai_realtime``) is such an adapter. It parses a message of the
client into actions, and writes events of the call as messages for the client. It keeps the identities and the
order that its clients require, and nothing else: it reads no clock, holds no task and has no socket. A
message that it cannot read raises a ``ProtocolError``, and the call continues.

Audio is mono, as bytes in the protocol's formats; times are milliseconds since the call began.
"""

import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, cast

import numpy as np
import orjson
import pybase64

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.core.errors import PeerError
from parley.core.frame_facts import FrameFact
from parley.core.passage_notes import CitedPassage
from parley.core.usage import Usage
from parley.protocols.client_mcp import McpApproval, McpDeclaration, McpHappening

Message = dict[str, Any]


class ProtocolError(PeerError):
    """Message that is not accepted, with the reason.

    Attributes:
        code: for programs.
        param: the field at fault, where there is one.
    """

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class Codec(Enum):
    """Encoding of audio as bytes; numbers are little-endian."""

    PCM16 = "pcm16"
    FLOAT32 = "float32"
    PCMU = "pcmu"
    PCMA = "pcma"
    OGG_OPUS = "ogg_opus"


@dataclass(frozen=True, slots=True)
class Format:
    """Audio format of one direction."""

    codec: Codec
    rate_hz: int


# Marks a frame of audio that has already reached the place where it is played.
ALREADY_SENT = FrameFact[bool]("already_sent")
# Id of the frame that ended the caller's turn, on a message that the turn is over.
TURN_END = FrameFact[int]("turn_end")
# Reason with which a stopping server ends its calls, and the close frame of their sockets.
SHUTDOWN = "server_shutdown"
STOPPING = (1012, "the server is stopping")
# Reasons with which a server ends the call of a client, and a sentence for readers.
REFUSED = "unreadable_messages", "many messages in a row were refused"
UNREAD = "messages_not_read", "the client did not read what it was sent"
TIMED_OUT = "timeout", "the time of the client is over"
BROKEN = "error", "the server has failed"
SAMPLE_BYTES = {Codec.PCM16: 2, Codec.FLOAT32: 4, Codec.PCMU: 1, Codec.PCMA: 1}


# Actions: requests of the client.


@dataclass(frozen=True, slots=True)
class Speech:
    """Speech of the caller, in the input format.

    Attributes:
        data: samples.
        is_whole: true for a whole turn, sent after the fact. It may be processed faster than real time.
    """

    data: bytes
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures: files (JPEG, PNG, WebP), oldest first.

    Attributes:
        files: their contents.
        are_shown: true when the caller shows them with their next turn; false for frames of a camera.
    """

    files: tuple[bytes, ...]
    are_shown: bool = False


@dataclass(frozen=True, slots=True)
class Typed:
    """Typed text in place of speech."""

    text: str


@dataclass(frozen=True, slots=True)
class EarlierReply:
    """Earlier speech of the bot, which the client supplies as history."""

    text: str


@dataclass(frozen=True, slots=True)
class Greet:
    """Request for the bot to speak first, if neither side has spoken yet."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Choice of a client between tools for an answer.

    Attributes:
        is_required: the model has to call one; False: it decides by itself.
        name: which one it has to call; None: any.
        label: MCP server of the client that has the named tool; empty: a tool that the client runs.
    """

    is_required: bool = False
    name: str | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class CreateResponse:
    """Request for the bot to speak now, whichever side spoke last.

    Attributes:
        instructions: for this answer only, in place of the client's other ones; None: those apply.
        text: typed message to answer; empty: the conversation so far.
        tools: for this answer only, in place of the client's other ones; None: those apply.
        choice: between them, for this answer only; None: that of the session applies.
        mcp: MCP servers for this answer only, in place of the client's other ones; None: those apply.
    """

    instructions: str | None = None
    text: str = ""
    tools: "tuple[ClientTool, ...] | None" = None
    choice: ToolChoice | None = None
    mcp: tuple[McpDeclaration, ...] | None = None


@dataclass(frozen=True, slots=True)
class OutOfBandRequest:
    """Request for a text of the model outside of the conversation, which neither side hears or remembers.

    Attributes:
        request_id: repeated with the answer.
        instructions: in place of the client's other ones; None: those apply.
        lines: role and text of the messages to answer, the oldest first; None: the conversation so far.
        most_tokens: longest answer; None: no limit of the client.
    """

    request_id: str
    instructions: str | None = None
    lines: tuple[tuple[str, str], ...] | None = None
    most_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class EndTurn:
    """Report that the caller's turn is over, whatever voice activity detection decides.

    Attributes:
        is_quiet: true when no audio follows by which the end of the voice could be detected.
    """

    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Request for the bot to stop speaking now."""


@dataclass(frozen=True, slots=True)
class MustListen:
    """Request that the bot does not speak in the unit with the next audio."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Request to pause input and output for this time; None: as long as is allowed."""

    pause_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Request to continue after a pause."""


@dataclass(frozen=True, slots=True)
class PlaybackTruncated:
    """Report of how much of a reply the client has played."""

    reply_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class ClientTool:
    """Tool that the client runs.

    Attributes:
        name: unique among the client's tools.
        description: for the model.
        parameters: JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """Output of a tool that the client ran."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class ToolsAnswered:
    """Request to answer now: the client has returned the outputs of all tools that it was to run.

    Attributes:
        tools: for this answer only, in place of the client's other ones; None: those apply.
        choice: between them, for this answer only; None: that of the session applies.
        mcp: MCP servers for this answer only, in place of the client's other ones; None: those apply.
    """

    tools: tuple[ClientTool, ...] | None = None
    choice: ToolChoice | None = None
    mcp: tuple[McpDeclaration, ...] | None = None


@dataclass(frozen=True, slots=True)
class SessionUpdate:
    """Settings of the conversation that the client requests. None leaves a setting unchanged.

    Attributes:
        instructions: text added to the deployment's prompt; empty: none.
        notes: further text added to the prompt.
        tools: tools that the client runs.
        choice: between them, for every answer to the caller.
        reply_choice: between them, for the next reply only, in place of ``choice``; no client sets it here.
        answers: turns of the caller are answered without a request.
        patience: of the end of a turn, 0..1 (``hearing.endpoint.patience``); before the conversation begins.
        voice: name of the voice of the bot, from the next reply on; one of ``ClientProtocol.permit``.
        reference_voice: id of the reference voice that an engine imitates; before the conversation begins.
        allow_recording: the caller's consent to a recording of the call, or its refusal.
        llm_ref_audio: reference voice for a speech model, float32, (samples,), 16 kHz.
        tts_ref_audio: the same for the part of the model that generates audio.
        settings: of a speech model, by name.
        mcp: MCP servers of the client, whose tools this server calls.
    """

    instructions: str | None = None
    notes: str | None = None
    tools: tuple[ClientTool, ...] | None = None
    choice: ToolChoice | None = None
    reply_choice: ToolChoice | None = None
    answers: bool | None = None
    patience: float | None = None
    voice: str | None = None
    reference_voice: str | None = None
    allow_recording: bool | None = None
    llm_ref_audio: np.ndarray | None = None
    tts_ref_audio: np.ndarray | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    mcp: tuple[McpDeclaration, ...] | None = None


@dataclass(frozen=True, slots=True)
class LatencyMeasured:
    """Latency of an answer as the client's user has heard it.

    Attributes:
        report: fields of the report, not checked yet.
    """

    report: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EndAfter:
    """Time limit of the conversation from now on, whatever its state is then."""

    limit_ms: int


@dataclass(frozen=True, slots=True)
class Begin:
    """Report that the client has sent everything that must precede the conversation."""


@dataclass(frozen=True, slots=True)
class Send:
    """Message for the client."""

    message: Message


@dataclass(frozen=True, slots=True)
class LeaveSession:
    """Regular end of the conversation.

    Attributes:
        code: of the close frame.
        reason: of the close frame.
    """

    code: int = 1000
    reason: str = ""


Action = (
    Speech
    | Pictures
    | Typed
    | EarlierReply
    | Greet
    | CreateResponse
    | OutOfBandRequest
    | EndTurn
    | CancelResponse
    | MustListen
    | Pause
    | Resume
    | PlaybackTruncated
    | ToolAnswer
    | ToolsAnswered
    | McpApproval
    | SessionUpdate
    | LatencyMeasured
    | EndAfter
    | Begin
    | Send
    | LeaveSession
)


# Happenings: events of a call.


@dataclass(frozen=True, slots=True)
class Began:
    """The conversation has begun.

    Attributes:
        session_id: id by which it can be continued.
        facts: names of the engines, and further values such as ``next_token``, or ``recording_session_id``
            where the call is recorded.
    """

    session_id: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueUpdate:
    """The caller waits for a worker, or has stopped waiting: ``position`` is 0 then.

    Attributes:
        position: in the queue, from 1.
        wait_s: estimated wait; None when there is no estimate.
        ticket_id: of the queued request.
        length: of the queue.
    """

    position: int
    wait_s: float | None = None
    ticket_id: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """A speech model has been prepared.

    Attributes:
        unit_ms: unit length of the model.
        prompt_chars: length of its prompt.
        by_arrival: its units are processed as soon as their audio has arrived; otherwise by the clock.
    """

    unit_ms: int
    prompt_chars: int = 0
    by_arrival: bool = False


@dataclass(frozen=True, slots=True)
class CallerStarted:
    """The caller takes the floor: the bot's speech is cut.

    Attributes:
        voice_ms: start of the voice in the audio received; None: unknown.
    """

    voice_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallerStopped:
    """The caller's turn is over.

    Attributes:
        voice_ms: end of the voice in the audio received; None: unknown.
    """

    voice_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallerVoiceChanged:
    """Voice activity of the caller has begun or ended; a turn may have several stretches.

    Attributes:
        is_on: true at the beginning.
        late_ms: time since the change, which detection needs to be certain.
    """

    is_on: bool
    late_ms: int = 0


@dataclass(frozen=True, slots=True)
class RecognisedWords:
    """Words of the caller, as recognised."""

    text: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class ReplyBegan:
    """The bot begins to speak.

    Attributes:
        reply_id: generated by the call.
        is_filler: true for words that cover the wait for an answer and are none.
    """

    reply_id: str
    is_filler: bool = False


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """A piece of the bot's audio in the output format.

    Attributes:
        data: the audio.
        duration_ms: its duration.
        is_paced: it comes at the pace of speech, from the deployment's voice, and not unit by unit.
    """

    data: bytes
    duration_ms: float
    is_paced: bool = False


@dataclass(frozen=True, slots=True)
class ReplyWords:
    """Words of the reply, sent as they are spoken."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyCites:
    """The passages that a reply rests on are known; comes before the end of the reply, perhaps repeatedly.

    Attributes:
        reply_id: the reply, which may not have begun.
        passages: the best first; empty when it rests on none after all.
    """

    reply_id: str
    passages: tuple[CitedPassage, ...]


@dataclass(frozen=True, slots=True)
class ReplyUsed:
    """The model has reported its tokens for a reply; comes before the end of the reply.

    Attributes:
        reply_id: the reply, which may not have begun.
        usage: the tokens.
    """

    reply_id: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class ReplyOver:
    """The reply was sent completely, or it was cut off."""

    reply_id: str
    was_cut: bool = False


@dataclass(frozen=True, slots=True)
class UnitOver:
    """A unit of a speech model has ended; follows its audio.

    Attributes:
        vote: decision of the model: listen, speak, backchannel or yield.
        text: words of the unit.
        end_of_turn: true when the present speech of the bot is complete.
        took_ms: processing time.
        cost_ms: processing time by part: ``llm``, ``tts``, ``prefill``, ``all``.
        n_tokens, n_tts_tokens: tokens generated by the language model and for the audio.
        kv_tokens: length of the model's cache.
        lost: number of earlier units that were heard but never processed, because the model is slower than
            speech. Only where units are processed on arrival.
    """

    vote: str
    text: str = ""
    end_of_turn: bool = False
    took_ms: float = 0.0
    cost_ms: Mapping[str, float] = field(default_factory=dict)
    n_tokens: int = 0
    n_tts_tokens: int = 0
    kv_tokens: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The model calls a tool that the client runs.

    Attributes:
        call_id: generated by the call.
        name: of the tool.
        arguments: JSON.
        usage: tokens of the request, where it has no words of its own; None: not known.
    """

    call_id: str
    name: str
    arguments: str
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Faltered:
    """An engine has failed during the conversation; another one takes over, or the conversation ends soon."""

    message: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The conversation is paused, for ``pause_ms`` at most."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """The conversation continues after a pause."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The client's report of how much of a reply was played has been stored in the session.

    Attributes:
        reply_id: the reply.
        audio_ms: the audio that the client played.
        heard: the words of it, as the session keeps them; None: the reply is not over.
    """

    reply_id: str
    audio_ms: int
    heard: str | None = None


@dataclass(frozen=True, slots=True)
class OutOfBandAnswer:
    """Answer to an ``OutOfBandRequest``.

    Attributes:
        request_id: of the request.
        text: the answer.
        fault: why there is none; empty otherwise.
        usage: tokens of the model; None where it reports none.
    """

    request_id: str
    text: str = ""
    fault: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A response that the client has requested is not made, although the request was accepted.

    Attributes:
        fault: why.
    """

    fault: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The conversation is over.

    Attributes:
        reason: stopped, timeout, context_full, server_shutdown, rate_limit_exceeded, grants_expired,
            ended_by_operator, service_failed or error.
        message: for people; empty when there was no error.
    """

    reason: str
    message: str = ""


Happening = (
    Began
    | QueueUpdate
    | Ready
    | CallerStarted
    | CallerStopped
    | CallerVoiceChanged
    | RecognisedWords
    | ReplyBegan
    | ReplyAudio
    | ReplyWords
    | ReplyCites
    | ReplyUsed
    | ReplyOver
    | UnitOver
    | ToolCalled
    | Faltered
    | Paused
    | Resumed
    | Trimmed
    | OutOfBandAnswer
    | RequestFailed
    | McpHappening
    | SessionEnded
)


class UnitSink(Protocol):
    """Client that receives each unit of a speech model as it is generated, before the pipeline does.

    The pipeline keeps the record of what is spoken. The methods may not block or raise.

    Attributes:
        rate_hz: of the audio that it takes.
    """

    rate_hz: int

    def say(self, pcm: bytes) -> None:
        """Send audio of the bot, 16-bit. It passes through the pipeline too, marked as ``ALREADY_SENT``."""
        ...

    def cut(self) -> None:
        """Drop the audio that has not been played yet."""
        ...

    def report(self, happening: Happening) -> None:
        """Report an event of the call, in order with the audio."""
        ...


class ClientProtocol(Protocol):
    """Protocol of one client, for one conversation.

    Attributes:
        name: of the surface, as the session's events record it.
        input_format: of the caller's audio; a message may change it.
        output_format: of the bot's audio; a message may change it.
        queues: the client waits in the queue and receives its position. Where false, a client is refused
            while no line is free.
        wants_units: the units of a speech model are sent one by one, each with all of its audio.
        greets: the bot speaks first.
        prompts: a silent caller is prompted.
        announces: the message about the session's beginning comes before any other.
        lead_ms: least time by which the bot's audio leaves before it is due; above 0 where the clients have a
            player that holds any length of audio.
    """

    @property
    def name(self) -> str:
        """Name of the surface."""
        ...

    @property
    def input_format(self) -> Format:
        """Format of the caller's audio."""
        ...

    @property
    def output_format(self) -> Format:
        """Format of the bot's audio."""
        ...

    queues: bool
    wants_units: bool
    greets: bool
    prompts: bool
    announces: bool
    lead_ms: int

    def read(self, text: str, at_ms: int) -> Iterable[Action]:
        """Return the actions of a message of the client.

        Each action is carried out before the next is requested.

        Raises:
            ProtocolError: the message is not accepted; the call continues.
        """
        ...

    def refused(self, refusal: ProtocolError) -> Sequence[Message]:
        """Return the messages to the client about a message that was refused."""
        ...

    def messages_for(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """Return the messages to the client about an event of the call; often none."""
        ...

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set, before the first message, whether the client's instructions are followed, and its voices.

        Reports of the client's settings show the effective ones. Actions carry the instructions in either
        case, and the call decides by its rules.
        """
        ...

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Return code and reason of the close frame for an ended conversation (``SessionEnded.reason``)."""
        ...


# Functions shared by the protocols.

# Bounds for one message. Objects and lists take some 0.3 us each and at least 60 bytes, values a tenth of
# that, and the names of an object's fields as much as a list. A whole conversation may be one message of a
# turn-based socket. Messages of a realtime protocol have long audio and few values.
MOST_CONTAINERS, MOST_VALUES, MOST_REALTIME_VALUES = 20_000, 200_000, 20_000
# Deeper than any message of a protocol or schema of a tool. Python 3.12 and later parse thousands of levels,
# which what reads the message afterwards might not bear.
MOST_LEVELS = 100
# From this size on, characters are counted by numpy: 2 ms for 4 MB, where ``str.count`` takes 9.
LARGE_CHARS = 65_536
# A longer text is audio or a picture, which has no surrogates.
MOST_PATIENT_CHARS = 500_000


def json_object(text: str, *, most_values: int = MOST_VALUES) -> Message:
    """Parse a message into a JSON object.

    Parsing in a thread would not leave the event loop free, because a parser holds the interpreter from the
    first character to the last. The bounds keep the parsing short instead.

    Args:
        text: of the message.
        most_values: maximum number of values.

    Raises:
        ProtocolError: not a JSON object, or too many parts to be parsed quickly.
    """
    # Checked before parsing: a million empty objects in 3 MB take a quarter of a second and 200 MB. Base64
    # has none of these characters.
    objects, lists, commas = _counted(text, "{[,")
    if objects + lists > MOST_CONTAINERS or commas > most_values:
        raise ProtocolError(
            f"the message has over {MOST_CONTAINERS} objects and lists, or over {most_values} values",
            code="too_large",
        )
    try:
        message = any_json(text)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    else:
        fault = "" if isinstance(message, dict) else "expected an object"
        if objects + lists > MOST_LEVELS and _is_deep(message):
            fault = f"over {MOST_LEVELS} levels are nested"
    if fault:
        # Raised outside of the handler: the parser's error holds the whole text, and this error would keep
        # it.
        raise ProtocolError(f"the message is not a JSON object: {fault}", code="invalid_json")
    return cast(Message, message)


def _is_deep(message: object) -> bool:
    """Return whether more than ``MOST_LEVELS`` objects and lists are inside of each other."""
    level = [message]
    for _ in range(MOST_LEVELS):
        level = [
            child
            for each in level
            for child in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _counted(text: str, characters: str) -> list[int]:
    """Return how often each ASCII character occurs in a text."""
    if len(text) < LARGE_CHARS or not text.isascii():
        return [text.count(character) for character in characters]
    data = np.frombuffer(text.encode(), np.uint8)
    return [int(np.count_nonzero(data == ord(character))) for character in characters]


def any_json(text: str) -> Any:
    """Parse a JSON text. Half a surrogate pair is accepted, NaN is not.

    Raises:
        ValueError: not JSON.
        RecursionError: nested too deeply.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if len(text) > MOST_PATIENT_CHARS:
            raise
        # Slower, and accepts half a surrogate pair.
        return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def parsed(text: str) -> Message:
    """Parse a message of a realtime protocol into a JSON object with a type.

    Raises:
        ProtocolError: not a JSON object, or without a type.
    """
    message = json_object(text, most_values=MOST_REALTIME_VALUES)
    if not isinstance(message.get("type"), str):
        raise ProtocolError("the message has no type", code="missing_field", param="type")
    return message


def decoded(value: object, *, param: str, most_bytes: int) -> bytes:
    """Decode bytes from base64.

    Raises:
        ProtocolError: not base64, or too long.
    """
    if not isinstance(value, str):
        raise ProtocolError(f"{param}: expected base64 text", code="invalid_payload", param=param)
    if len(value) > most_bytes * 4 // 3 + 4:
        raise ProtocolError(f"{param}: over {most_bytes} bytes", code="too_large", param=param)
    try:
        return pybase64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"{param}: not base64: {error}", code="invalid_payload", param=param) from error


def samples_of(value: object, codec: Codec, *, param: str, most_bytes: int) -> bytes:
    """Decode audio from base64.

    Raises:
        ProtocolError: not base64, too long, not whole samples, or values that are not finite.
    """
    data = decoded(value, param=param, most_bytes=most_bytes)
    if len(data) % SAMPLE_BYTES[codec]:
        raise ProtocolError(f"{param}: not a whole number of samples", code="invalid_payload", param=param)
    if codec is Codec.FLOAT32 and not np.isfinite(np.frombuffer(data, "<f4")).all():
        raise ProtocolError(f"{param}: non-finite samples", code="invalid_payload", param=param)
    return data


def written(data: bytes) -> str:
    """Return bytes in base64."""
    return pybase64.b64encode_as_string(data)


def json_text(message: Message) -> str:
    """Return a message as JSON text."""
    try:
        return orjson.dumps(message).decode()
    except TypeError:
        # Half a surrogate pair, which a model may write, is not valid UTF-8. ASCII can escape it.
        return json.dumps(message, separators=(",", ":"))


def text_of(message: Mapping[str, Any], name: str, *, default: str | None = None, most_chars: int) -> str:
    """Return a text field.

    Raises:
        ProtocolError: missing, not text, or too long.
    """
    value = message.get(name, default)
    if value is None:
        raise ProtocolError(f"{name}: missing", code="missing_field", param=name)
    if not isinstance(value, str):
        raise ProtocolError(f"{name}: expected text", code="invalid_payload", param=name)
    if len(value) > most_chars:
        raise ProtocolError(f"{name}: over {most_chars} characters", code="too_large", param=name)
    return value
