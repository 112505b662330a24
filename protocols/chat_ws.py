"""The MiniCPM-o server's turn-based sockets (``/ws/chat``, ``/ws/streaming``): JSON to typed requests.

By the field names of that server's code and pages, which send more than is read: unknown fields are passed
over. What would change the answer and cannot be done here is a ``Refusal`` that names the item, or stands in
``Given.unused`` where a page sends it whatever it is asked. Pure: base64 stays what it is, whoever needs the
bytes decodes them where nobody waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from protocols.surface import Message, Refusal, json_object

AUDIO_RATE_HZ = 16_000
VOICE_RATE_HZ = 24_000
MOST_MESSAGES, MOST_ITEMS, MOST_CHARS = 512, 64, 32_768
# Of base64: the size of a whole message is bounded before it is read.
MOST_DATA_CHARS = 200_000_000

Role = Literal["system", "user", "assistant"]


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TextItem(_Given):
    """Words."""

    type: Literal["text"]
    text: str = Field(max_length=MOST_CHARS)


class ImageItem(_Given):
    """A picture's file in base64."""

    type: Literal["image"]
    data: str = Field(max_length=MOST_DATA_CHARS)


class AudioItem(_Given):
    """Raw float32 PCM in base64, mono."""

    type: Literal["audio"]
    data: str = Field(max_length=MOST_DATA_CHARS)
    sample_rate: Literal[16_000] = 16_000


class VideoItem(_Given):
    """A video's file in base64."""

    type: Literal["video"]
    data: str = Field(max_length=MOST_DATA_CHARS)
    stack_frames: int = Field(1, ge=1, le=64)


Item = Annotated[TextItem | ImageItem | AudioItem | VideoItem, Field(discriminator="type")]


class ChatMessage(_Given):
    """One entry of the dialogue."""

    role: Role
    content: (
        Annotated[str, Field(max_length=MOST_CHARS)]
        | Annotated[tuple[Item, ...], Field(max_length=MOST_ITEMS)]
    )

    @property
    def items(self) -> tuple[Item, ...]:
        """The content as items."""
        if isinstance(self.content, str):
            return (TextItem(type="text", text=self.content),)
        return self.content


class GenerationConfig(_Given):
    """Checked; the deployment's model has its own settings."""

    max_new_tokens: int | None = Field(None, ge=1, le=1_000_000)
    length_penalty: float | None = Field(None, ge=0, le=100)


class ImageConfig(_Given):
    """Checked; there is nothing here that looks at pictures."""

    max_slice_nums: int | None = Field(None, ge=1, le=16)


class TtsConfig(_Given):
    """Whether the answer is spoken."""

    enabled: bool = False
    ref_audio_data: str | None = Field(None, max_length=MOST_DATA_CHARS)


class ChatRequest(_Given):
    """``/ws/chat``: all of a conversation, and what is wanted of its answer."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1, max_length=MOST_MESSAGES)
    streaming: bool = True
    generation: GenerationConfig | None = None
    image: ImageConfig | None = None
    tts: TtsConfig | None = None
    use_tts_template: bool | None = False
    omni_mode: bool | None = False
    enable_thinking: bool | None = False
    history: Literal["whole", "new"] | None = Field(
        None, description="whether ``messages`` are all of the conversation; see ``Given.is_whole``"
    )

    @property
    def speaks(self) -> bool:
        """Whether the answer is wanted in sound too."""
        return self.tts is not None and self.tts.enabled


class Prefill(ChatRequest):
    """``prefill`` of ``/ws/streaming``: the same; what is wanted of the answer may come with ``generate``."""

    type: Literal["prefill"]
    ref_audio_base64: str | None = Field(None, max_length=MOST_DATA_CHARS)


class Generate(_Given):
    """``generate``: answer what was prefilled. None: as ``prefill`` said, without sound where it did not."""

    type: Literal["generate"]
    generate_audio: bool | None = None
    tts: TtsConfig | None = None
    generation: GenerationConfig | None = None

    @property
    def speaks(self) -> bool | None:
        """Whether the answer is wanted in sound too; None where it is not said here."""
        if self.tts is not None:
            return self.tts.enabled
        return self.generate_audio


class CompleteTurn(_Given):
    """``complete_turn``: nothing is left to do for it, every turn is whole when it is done."""

    type: Literal["complete_turn"]


class Stop(_Given):
    """``stop``: no more of the answer."""

    type: Literal["stop"]


class Close(_Given):
    """``close``: the conversation is over."""

    type: Literal["close"]


StreamingMessage = Prefill | Generate | CompleteTurn | Stop | Close
_STREAMING: TypeAdapter[StreamingMessage] = TypeAdapter(
    Annotated[StreamingMessage, Field(discriminator="type")]
)
_CHAT: TypeAdapter[ChatRequest] = TypeAdapter(ChatRequest)


@dataclass(frozen=True, slots=True)
class Part:
    """What one message says: words, and recordings that are to be understood, in order.

    Attributes:
        where: of the message, for people: ``messages[1]``.
        pieces: texts, and recordings as (where, base64).
    """

    where: str
    role: Literal["user", "assistant"]
    pieces: tuple[str | tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A request, sorted.

    Attributes:
        instruction: who the bot is; None where the client does not say.
        parts: of the dialogue; the last one is the user's.
        is_whole: the parts are all of the conversation as the client shows it, and the session is to follow;
            otherwise they come behind what it has.
        speaks: the answer is wanted in sound too.
        streaming: piece by piece.
        unused: what has no effect here, by name.
    """

    instruction: str | None
    parts: tuple[Part, ...]
    is_whole: bool
    speaks: bool
    streaming: bool
    unused: tuple[str, ...]


def chat_request(text: str) -> ChatRequest | Stop:
    """A message of ``/ws/chat``.

    Raises:
        Refusal: it is none.
    """
    message = json_object(text)
    if message.get("type") == "stop":
        return Stop(type="stop")
    return _checked(_CHAT, message)


def streaming_message(text: str) -> StreamingMessage:
    """A message of ``/ws/streaming``.

    Raises:
        Refusal: it is none.
    """
    return _checked(_STREAMING, json_object(text))


def given(request: ChatRequest) -> Given:
    """What is asked for.

    Raises:
        Refusal: an item that no engine of a cascade understands, or nothing to answer.
    """
    told: list[str] = []
    parts: list[Part] = []
    unused: list[str] = []
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if message.role == "system":
            told += _system(message, where, unused)
        else:
            parts.append(Part(where, message.role, tuple(_pieces(message, where))))
    if not parts or parts[-1].role != "user":
        raise Refusal("messages: the last one is to be the user's", code="invalid_payload", param="messages")
    if request.tts is not None and request.tts.ref_audio_data:
        unused.append("tts.ref_audio_data: the bot speaks with the deployment's voice")
    if isinstance(request, Prefill) and request.ref_audio_base64:
        unused.append("ref_audio_base64: the bot speaks with the deployment's voice")
    if request.enable_thinking:
        unused.append("enable_thinking: as the deployment has it")
    whole = len(request.messages) > 1 if request.history is None else request.history == "whole"
    instruction = "\n\n".join(text.strip() for text in told if text.strip())
    return Given(instruction or None, tuple(parts), whole, request.speaks, request.streaming, tuple(unused))


def _system(message: ChatMessage, where: str, unused: list[str]) -> list[str]:
    told = []
    for place, item in enumerate(message.items):
        if isinstance(item, TextItem):
            told.append(item.text)
        elif isinstance(item, AudioItem):
            # Its pages always send one.
            unused.append(f"{where}.content[{place}]: the bot speaks with the deployment's voice")
        else:
            raise _not_understood(f"{where}.content[{place}]", item)
    return told


def _pieces(message: ChatMessage, where: str) -> list[str | tuple[str, str]]:
    pieces: list[str | tuple[str, str]] = []
    for place, item in enumerate(message.items):
        at = f"{where}.content[{place}]"
        if isinstance(item, TextItem):
            pieces.append(item.text)
        elif isinstance(item, AudioItem) and message.role == "user":
            pieces.append((at, item.data))
        else:
            raise _not_understood(at, item)
    return pieces


def _not_understood(where: str, item: Item) -> Refusal:
    names = {
        "image": "pictures are",
        "video": "video is",
        "audio": "audio of this role is",
        "text": "text is",
    }
    return Refusal(
        f"{where}: {names[item.type]} not understood by this deployment's language model",
        code="unsupported",
        param=where,
    )


def _checked(adapter: TypeAdapter[Any], message: Message) -> Any:
    try:
        return adapter.validate_python(message)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)[:5]
        text = "; ".join(f"{_place(fault['loc'])}{fault['msg']}" for fault in faults)
        raise Refusal(
            text, code="invalid_payload", param=_place(faults[0]["loc"]).rstrip(": ") or None
        ) from error


def _place(loc: Sequence[int | str]) -> str:
    return f"{'.'.join(map(str, loc))}: " if loc else ""


# What the server says.


def prefill_done(cached: int | None, read: int | None, **more: Any) -> Message:
    """The question was read: so many tokens in the cache, so many anew; None: the model does not say."""
    return {"type": "prefill_done", "cached_tokens": cached, "input_tokens": read, **more}


def error(text: str, code: str = "") -> Message:
    """Something was not taken, or failed."""
    return {"type": "error", "error": text, **({"code": code} if code else {})}
