"""What a conversation and a client's protocol say to each other, whatever the protocol.

A dialect (``protocols.openai_realtime`` and its neighbours) stands between the two: a client's message is
read into actions, what happens in the call is written as the client's messages. It keeps the identities and
the order that its protocol asks for, and nothing else: it reads no clock, holds no task and knows no
socket. What a dialect cannot read is a ``Refusal`` of that message, and the call goes on.

Audio is mono, as bytes in the dialect's formats; times are milliseconds since the call began.
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

from core.errors import PeerError
from core.frame_facts import FrameFact

Message = dict[str, Any]


class Refusal(PeerError):
    """A message that is not taken, and why.

    Attributes:
        code: for programs.
        param: the field that is at fault, where it is one.
    """

    def __init__(self, message: str, *, code: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


class Codec(Enum):
    """How audio is written as bytes; numbers are little-endian."""

    PCM16 = "pcm16"
    FLOAT32 = "float32"
    PCMU = "pcmu"
    PCMA = "pcma"
    OGG_OPUS = "ogg_opus"


@dataclass(frozen=True, slots=True)
class Format:
    """Of one direction."""

    codec: Codec
    rate_hz: int


# A frame of audio is at the place where it is played already.
TOLD = FrameFact[bool]("told")
# Of a message that a turn of the caller's is over: the id of the frame that ended it.
TURN_END = FrameFact[int]("turn_end")
# The reason for which a server that stops ends its calls, and how it closes their sockets.
SHUTDOWN = "server_shutdown"
STOPPING = (1012, "the server is stopping")
SAMPLE_BYTES = {Codec.PCM16: 2, Codec.FLOAT32: 4, Codec.PCMU: 1, Codec.PCMA: 1}


# What a client wants.


@dataclass(frozen=True, slots=True)
class Speech:
    """More of what the caller says, in the input format.

    Attributes:
        is_whole: all that was said in a turn, after the fact: it may be heard faster than it was said.
    """

    data: bytes
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Pictures:
    """What the caller's camera shows: files (JPEG, PNG), oldest first."""

    files: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Typed:
    """Words in place of speech."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words of the bot's in an earlier conversation that the client brings along."""

    text: str


@dataclass(frozen=True, slots=True)
class Greet:
    """The bot is to speak first, if nobody has spoken yet."""


@dataclass(frozen=True, slots=True)
class Respond:
    """The bot is to speak now, whoever spoke last.

    Attributes:
        instructions: for this answer, in place of those that the client has added to the prompt; None: those.
        text: what it answers, typed; empty: what was said so far.
    """

    instructions: str | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The caller's turn is over, whatever the voice says.

    Attributes:
        is_quiet: no audio comes behind it by which a voice would be known to have ended.
    """

    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class Hush:
    """The bot is to be silent now."""


@dataclass(frozen=True, slots=True)
class MustListen:
    """The bot may not speak in the unit that holds what comes next."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Hear and say nothing, for so long at most; None for as long as is allowed."""

    pause_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on."""


@dataclass(frozen=True, slots=True)
class HeardUntil:
    """The client says how much of a reply was played."""

    reply_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class ClientTool:
    """A tool that the client runs.

    Attributes:
        parameters: JSON schema of its arguments.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What came of a tool that the client ran."""

    call_id: str
    output: str


@dataclass(frozen=True, slots=True)
class Wish:
    """How the client wants the conversation to be. None: as it is.

    Attributes:
        instructions: what is added to the deployment's prompt; empty: nothing.
        notes: what is added besides.
        tools: that the client runs.
        llm_ref_audio: a voice for a speech model to sound like, float32, (samples,), 16 kHz.
        tts_ref_audio: the same for what makes its sound.
        settings: of a speech model, by name.
    """

    instructions: str | None = None
    notes: str | None = None
    tools: tuple[ClientTool, ...] | None = None
    llm_ref_audio: np.ndarray | None = None
    tts_ref_audio: np.ndarray | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EndAfter:
    """The conversation is to be over so long from now on, whatever goes on then."""

    limit_ms: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The client has said what it wants to be known before the conversation begins."""


@dataclass(frozen=True, slots=True)
class Send:
    """Something for the client."""

    message: Message


@dataclass(frozen=True, slots=True)
class Leave:
    """The conversation is over, in good order.

    Attributes:
        code: of the close frame.
    """

    code: int = 1000
    reason: str = ""


Action = (
    Speech
    | Pictures
    | Typed
    | Said
    | Greet
    | Respond
    | EndTurn
    | Hush
    | MustListen
    | Pause
    | Resume
    | HeardUntil
    | ToolAnswer
    | Wish
    | EndAfter
    | Begin
    | Send
    | Leave
)


# What happens in a call.


@dataclass(frozen=True, slots=True)
class Began:
    """The conversation is there.

    Attributes:
        session_id: by which it can be gone on with.
        transports: names of what answers, for people.
    """

    session_id: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InQueue:
    """The caller waits for a worker, or no longer: ``position`` is 0 then.

    Attributes:
        wait_s: estimated; None when nobody knows.
    """

    position: int
    wait_s: float | None = None
    ticket_id: str = ""
    length: int = 0


@dataclass(frozen=True, slots=True)
class Ready:
    """A speech model has been prepared.

    Attributes:
        prompt_chars: length of what it was told to be.
        by_arrival: its units are taken when they have been heard; otherwise by the clock.
    """

    unit_ms: int
    prompt_chars: int = 0
    by_arrival: bool = False


@dataclass(frozen=True, slots=True)
class CallerStarted:
    """The caller has the floor: what the bot says is cut.

    Attributes:
        voice_ms: where the voice began, in the audio that was heard; None: not known.
    """

    voice_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallerStopped:
    """The caller's turn is over.

    Attributes:
        voice_ms: where the voice ended, in the audio that was heard; None: not known.
    """

    voice_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CallerVoice:
    """A voice is heard at the caller's side, or no longer; a turn may have several.

    Attributes:
        late_ms: how long ago it began, or ended: it takes that to be sure of it.
    """

    is_on: bool
    late_ms: int = 0


@dataclass(frozen=True, slots=True)
class Words:
    """What the caller said, as it was understood."""

    text: str
    is_final: bool


@dataclass(frozen=True, slots=True)
class ReplyBegan:
    """The bot begins to speak."""

    reply_id: str


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """More of what it says, in the output format, and how long that is."""

    data: bytes
    duration_ms: float


@dataclass(frozen=True, slots=True)
class ReplyWords:
    """The words of that, as they are said."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyOver:
    """All of it was sent, or it was cut off."""

    reply_id: str
    was_cut: bool = False


@dataclass(frozen=True, slots=True)
class UnitOver:
    """A unit of a speech model, behind its audio.

    Attributes:
        vote: what was decided: listen, speak, backchannel or yield.
        end_of_turn: nothing more of what is being said comes.
        cost_ms: by part: ``llm``, ``tts``, ``prefill``, ``all``.
        lost: units in front of it that were heard and never taken, where units are taken as they come: the
            model is slower than speech.
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
class ToolAsked:
    """The model calls a tool of the client's."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Faltered:
    """An engine has failed in the middle; another one goes on, or the conversation is over soon."""

    message: str


@dataclass(frozen=True, slots=True)
class Paused:
    """The conversation is held; ``pause_ms`` is how long at most."""

    pause_ms: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """It goes on."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What the client said it heard of a reply is in the session."""

    reply_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class Over:
    """The conversation is over.

    Attributes:
        reason: stopped, timeout, context_full, server_shutdown, rate_limit_exceeded, grants_expired or error.
        message: for people; empty when nothing is wrong.
    """

    reason: str
    message: str = ""


Happening = (
    Began
    | InQueue
    | Ready
    | CallerStarted
    | CallerStopped
    | CallerVoice
    | Words
    | ReplyBegan
    | ReplyAudio
    | ReplyWords
    | ReplyOver
    | UnitOver
    | ToolAsked
    | Faltered
    | Paused
    | Resumed
    | Trimmed
    | Over
)


class UnitMouth(Protocol):
    """A client that is told each unit of a speech model as it is made, in front of the pipeline, which keeps
    the books of what is said. Nothing here may block or raise.

    Attributes:
        rate_hz: of the audio that it takes.
    """

    rate_hz: int

    def say(self, pcm: bytes) -> None:
        """Audio of the bot, 16-bit. It comes through the pipeline too, marked as ``TOLD``."""
        ...

    def cut(self) -> None:
        """What was said and is not played yet is not to be played."""
        ...

    def tell(self, happening: Happening) -> None:
        """Something has happened, behind what was said."""
        ...


class Dialect(Protocol):
    """One client's protocol, for one conversation.

    Attributes:
        name: of the surface, as the session's events have it.
        input_format: of what the caller says; may change with a message.
        output_format: of what the bot says; the same.
        queues: the client gets its place in the queue for a line, and waits there; a client of another
            protocol is refused while there is none.
        wants_units: a speech model's units are told one by one, each with all of its audio.
        greets: the bot speaks first.
        prompts: a caller who says nothing is spoken to.
    """

    @property
    def name(self) -> str:
        """Of the surface."""
        ...

    @property
    def input_format(self) -> Format:
        """What the caller says is written so."""
        ...

    @property
    def output_format(self) -> Format:
        """What the bot says is written so."""
        ...

    queues: bool
    wants_units: bool
    greets: bool
    prompts: bool

    def read(self, text: str, at_ms: int) -> Iterable[Action]:
        """What a message of the client's means. Each action is taken before the next is asked for.

        Raises:
            Refusal: it is not taken; the call goes on.
        """
        ...

    def refused(self, refusal: Refusal) -> Sequence[Message]:
        """What the client is told of a message that was not taken."""
        ...

    def tell(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """What the client is told of what happens; often nothing."""
        ...

    def permit(self, *, instructions: bool) -> None:
        """Set, before the first message, whether the client's instructions are followed.

        Reports of its settings show what holds. Actions carry them all the same: the call decides by its
        rules.
        """
        ...

    def goodbye(self, reason: str) -> tuple[int, str]:
        """Code and reason of the close frame when a conversation is over by itself (``Over.reason``)."""
        ...


# What dialects have in common.

# Of one message: objects and lists take some 0.3 us each and 60 bytes and more, values a tenth of that, and
# the names of an object's fields as much as a list. A whole conversation may be one message of a turn-based
# socket; those of a realtime dialect have long audio and few values.
MOST_CONTAINERS, MOST_VALUES, MOST_REALTIME_VALUES = 20_000, 200_000, 20_000
# From this size on parts are counted by numpy: 2 ms in 4 MB, where ``str.count`` takes 9.
LARGE_CHARS = 65_536
# What is longer is audio or a picture, which has no surrogates.
MOST_PATIENT_CHARS = 500_000


def json_object(text: str, *, most_values: int = MOST_VALUES) -> Message:
    """Return a message as JSON.

    Parsing in a thread would not leave the event loop free: a parser holds the interpreter from the first
    character to the last. The bounds keep it short instead.

    Args:
        text: of the message.
        most_values: that it may have.

    Raises:
        Refusal: it is no JSON object, or takes long to be read.
    """
    # Before it is parsed: a million empty objects in 3 MB take a quarter of a second and 200 MB. Base64 has
    # none of these characters.
    objects, lists, commas = _counted(text, "{[,")
    if objects + lists > MOST_CONTAINERS or commas > most_values:
        raise Refusal(
            f"the message has over {MOST_CONTAINERS} objects and lists, or over {most_values} values",
            code="too_large",
        )
    try:
        message = any_json(text)
    except (ValueError, RecursionError) as error:
        fault = str(error)
    else:
        fault = "" if isinstance(message, dict) else "it is no object"
    if fault:
        # Outside of the handler: the parser's error holds the whole text, and would be held by this one.
        raise Refusal(f"the message is no JSON object: {fault}", code="invalid_json")
    return cast(Message, message)


def _counted(text: str, characters: str) -> list[int]:
    """Count ASCII characters in a text."""
    if len(text) < LARGE_CHARS or not text.isascii():
        return [text.count(character) for character in characters]
    data = np.frombuffer(text.encode(), np.uint8)
    return [int(np.count_nonzero(data == ord(character))) for character in characters]


def any_json(text: str) -> Any:
    """What a text says; half a surrogate pair is taken, NaN is not.

    Raises:
        ValueError: it is no JSON.
        RecursionError: too deep.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        if len(text) > MOST_PATIENT_CHARS:
            raise
        # Slower, and more patient.
        return json.loads(text, parse_constant=_no_constant)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def parsed(text: str) -> Message:
    """Return a message of a realtime dialect as JSON, with its type.

    Raises:
        Refusal: it is no JSON object, or has none.
    """
    message = json_object(text, most_values=MOST_REALTIME_VALUES)
    if not isinstance(message.get("type"), str):
        raise Refusal("the message has no type", code="missing_field", param="type")
    return message


def decoded(value: object, *, param: str, most_bytes: int) -> bytes:
    """Bytes that are written in base64.

    Raises:
        Refusal: they are not, or are too many.
    """
    if not isinstance(value, str):
        raise Refusal(f"{param}: expected base64 text", code="invalid_payload", param=param)
    if len(value) > most_bytes * 4 // 3 + 4:
        raise Refusal(f"{param}: over {most_bytes} bytes", code="too_large", param=param)
    try:
        return pybase64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refusal(f"{param}: no base64: {error}", code="invalid_payload", param=param) from error


def samples_of(value: object, codec: Codec, *, param: str, most_bytes: int) -> bytes:
    """Audio that is written in base64.

    Raises:
        Refusal: it is none: of no whole samples, or with values that are no numbers.
    """
    data = decoded(value, param=param, most_bytes=most_bytes)
    if len(data) % SAMPLE_BYTES[codec]:
        raise Refusal(f"{param}: no whole samples", code="invalid_payload", param=param)
    if codec is Codec.FLOAT32 and not np.isfinite(np.frombuffer(data, "<f4")).all():
        raise Refusal(f"{param}: samples that are not finite", code="invalid_payload", param=param)
    return data


def written(data: bytes) -> str:
    """Bytes in base64."""
    return pybase64.b64encode_as_string(data)


def json_text(message: Message) -> str:
    """A message as it is sent."""
    try:
        return orjson.dumps(message).decode()
    except TypeError:
        # Half a surrogate pair, which a model may write, is no UTF-8: in ASCII.
        return json.dumps(message, separators=(",", ":"))


def text_of(message: Mapping[str, Any], name: str, *, default: str | None = None, most_chars: int) -> str:
    """A text field.

    Raises:
        Refusal: it is missing, no text, or too long.
    """
    value = message.get(name, default)
    if value is None:
        raise Refusal(f"{name}: is missing", code="missing_field", param=name)
    if not isinstance(value, str):
        raise Refusal(f"{name}: expected text", code="invalid_payload", param=name)
    if len(value) > most_chars:
        raise Refusal(f"{name}: over {most_chars} characters", code="too_large", param=name)
    return value
