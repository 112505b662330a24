"""Turn-based routes of the MiniCPM-o server (``/ws/chat``, ``/ws/streaming``, ``/api/chat``): typed requests.

Field names are those of that server's code and pages. They send more than is read here, so unknown fields are
ignored. A field that would change the answer and is not supported raises a ``ProtocolError`` that names the
item. It is listed in ``ChatParts.unused`` instead where a page sends it in every request. Pure: base64 is not
decoded here, so that the decoding can happen off the event loop.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from parley.protocols.client_protocol import Message, ProtocolError, json_object

AUDIO_RATE_HZ = 16_000
VOICE_RATE_HZ = 24_000
MOST_MESSAGES, MOST_ITEMS, MOST_CHARS = 512, 64, 32_768
# Characters of base64. The size of a whole message is bounded before it is parsed.
MOST_DATA_CHARS = 200_000_000

Role = Literal["system", "user", "assistant"]


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TextItem(_Given):
    """Text."""

    type: Literal["text"]
    text: str = Field(max_length=MOST_CHARS)


class ImageItem(_Given):
    """Image file in base64."""

    type: Literal["image"]
    data: str = Field(max_length=MOST_DATA_CHARS)


class AudioItem(_Given):
    """Raw mono float32 PCM in base64."""

    type: Literal["audio"]
    data: str = Field(max_length=MOST_DATA_CHARS)
    sample_rate: Literal[16_000] = 16_000


class VideoItem(_Given):
    """Video file in base64."""

    type: Literal["video"]
    data: str = Field(max_length=MOST_DATA_CHARS)
    stack_frames: int = Field(1, ge=1, le=64)


Item = Annotated[TextItem | ImageItem | AudioItem | VideoItem, Field(discriminator="type")]


class ChatMessage(_Given):
    """Entry of the dialogue."""

    role: Role
    content: (
        Annotated[str, Field(max_length=MOST_CHARS)]
        | Annotated[tuple[Item, ...], Field(max_length=MOST_ITEMS)]
    )

    @property
    def items(self) -> tuple[Item, ...]:
        """Content as items."""
        if isinstance(self.content, str):
            return (TextItem(type="text", text=self.content),)
        return self.content


class GenerationConfig(_Given):
    """Generation settings. They are validated and have no effect: the deployment's model has its own."""

    max_new_tokens: int | None = Field(None, ge=1, le=1_000_000)
    length_penalty: float | None = Field(None, ge=0, le=100)


class ImageConfig(_Given):
    """Image settings. They are validated and have no effect: the deployment decides the size of pictures."""

    max_slice_nums: int | None = Field(None, ge=1, le=16)


class TtsConfig(_Given):
    """Speech output of the answer."""

    enabled: bool = False
    ref_audio_data: str | None = Field(None, max_length=MOST_DATA_CHARS)


class ChatRequest(_Given):
    """Request of ``/ws/chat``: a conversation, and the form of its answer."""

    messages: tuple[ChatMessage, ...] = Field(min_length=1, max_length=MOST_MESSAGES)
    streaming: bool = True
    generation: GenerationConfig | None = None
    image: ImageConfig | None = None
    tts: TtsConfig | None = None
    use_tts_template: bool | None = False
    omni_mode: bool | None = False
    enable_thinking: bool | None = False
    history: Literal["whole", "new"] | None = Field(
        None, description="whether ``messages`` are all of the conversation; see ``ChatParts.is_whole``"
    )

    @property
    def speaks(self) -> bool:
        """True when the answer is requested as audio too."""
        return self.tts is not None and self.tts.enabled


class Prefill(ChatRequest):
    """Message ``prefill`` of ``/ws/streaming``: a request; ``generate`` may add output options."""

    type: Literal["prefill"]
    ref_audio_base64: str | None = Field(None, max_length=MOST_DATA_CHARS)


class Generate(_Given):
    """Message ``generate``: answer the prefilled messages. A field that is None is taken from ``prefill``."""

    type: Literal["generate"]
    generate_audio: bool | None = None
    tts: TtsConfig | None = None
    generation: GenerationConfig | None = None

    @property
    def speaks(self) -> bool | None:
        """True when the answer is requested as audio too; None where the message leaves it open."""
        if self.tts is not None:
            return self.tts.enabled
        return self.generate_audio


class CompleteTurn(_Given):
    """Message ``complete_turn``. It has no effect, because every turn is complete when its answer ends."""

    type: Literal["complete_turn"]


class Stop(_Given):
    """Message ``stop``: end the answer."""

    type: Literal["stop"]


class Close(_Given):
    """Message ``close``: end the conversation."""

    type: Literal["close"]


T = TypeVar("T")
StreamingMessage = Prefill | Generate | CompleteTurn | Stop | Close
_STREAMING: TypeAdapter[StreamingMessage] = TypeAdapter(
    Annotated[StreamingMessage, Field(discriminator="type")]
)
_CHAT: TypeAdapter[ChatRequest] = TypeAdapter(ChatRequest)


@dataclass(frozen=True, slots=True)
class PictureItem:
    """Picture of a user's message.

    Attributes:
        where: its position, for error texts: ``messages[1].content[0]``.
        data: the file, in base64.
    """

    where: str
    data: str


@dataclass(frozen=True, slots=True)
class Part:
    """Content of one message: texts, and recordings to be transcribed, in order; and pictures.

    Attributes:
        where: position of the message, for error texts: ``messages[1]``.
        role: author of the message.
        pieces: texts, and recordings as (position, base64).
        pictures: of the message, in order.
    """

    where: str
    role: Literal["user", "assistant"]
    pieces: tuple[str | tuple[str, str], ...]
    pictures: tuple[PictureItem, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatParts:
    """Request, divided into its parts.

    Attributes:
        instruction: system prompt of the client; None where it sends none.
        parts: messages of the dialogue; the last one is the user's.
        is_whole: true when the parts are the whole conversation as the client shows it, and the session is to
            follow them. Otherwise they are appended to the session.
        speaks: the answer is requested as audio too.
        streaming: the answer is sent piece by piece.
        unused: fields without effect, with the reason.
    """

    instruction: str | None
    parts: tuple[Part, ...]
    is_whole: bool
    speaks: bool
    streaming: bool
    unused: tuple[str, ...]


def chat_request(text: str) -> ChatRequest | Stop:
    """Parse a message of ``/ws/chat``.

    Raises:
        ProtocolError: not a valid message.
    """
    message = json_object(text)
    if message.get("type") == "stop":
        return Stop(type="stop")
    return _checked(_CHAT, message)


def whole_request(text: str) -> ChatRequest:
    """Parse the body of ``POST /api/chat``: a request whose answer comes whole.

    Raises:
        ProtocolError: not a valid request.
    """
    return _checked(_CHAT, json_object(text)).model_copy(update={"streaming": False})


def streaming_message(text: str) -> StreamingMessage:
    """Parse a message of ``/ws/streaming``.

    Raises:
        ProtocolError: not a valid message.
    """
    return _checked(_STREAMING, json_object(text))


def given(request: ChatRequest, *, sees: bool = False) -> ChatParts:
    """Divide a request into its parts.

    Args:
        request: of the client.
        sees: the language model accepts pictures.

    Raises:
        ProtocolError: an item that no engine of a cascade supports, or no user message at the end.
    """
    instructions: list[str] = []
    parts: list[Part] = []
    unused: list[str] = []
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if message.role == "system":
            instructions += _system(message, where, unused)
        else:
            pieces, pictures = _pieces(message, where, sees=sees)
            parts.append(Part(where, message.role, tuple(pieces), tuple(pictures)))
    if not parts or parts[-1].role != "user":
        raise ProtocolError(
            "messages: the last message must be the user's", code="invalid_payload", param="messages"
        )
    if request.tts is not None and request.tts.ref_audio_data:
        unused.append("tts.ref_audio_data: the bot speaks with the deployment's voice")
    if isinstance(request, Prefill) and request.ref_audio_base64:
        unused.append("ref_audio_base64: the bot speaks with the deployment's voice")
    if request.enable_thinking:
        unused.append("enable_thinking: as the deployment has it")
    whole = len(request.messages) > 1 if request.history is None else request.history == "whole"
    instruction = "\n\n".join(text.strip() for text in instructions if text.strip())
    return ChatParts(
        instruction or None, tuple(parts), whole, request.speaks, request.streaming, tuple(unused)
    )


def _system(message: ChatMessage, where: str, unused: list[str]) -> list[str]:
    texts = []
    for place, item in enumerate(message.items):
        if isinstance(item, TextItem):
            texts.append(item.text)
        elif isinstance(item, AudioItem):
            # Pages of that server always send one.
            unused.append(f"{where}.content[{place}]: the bot speaks with the deployment's voice")
        else:
            raise _not_understood(f"{where}.content[{place}]", item)
    return texts


def _pieces(
    message: ChatMessage, where: str, *, sees: bool
) -> tuple[list[str | tuple[str, str]], list[PictureItem]]:
    pieces: list[str | tuple[str, str]] = []
    pictures: list[PictureItem] = []
    for place, item in enumerate(message.items):
        at = f"{where}.content[{place}]"
        if isinstance(item, TextItem):
            pieces.append(item.text)
        elif isinstance(item, AudioItem) and message.role == "user":
            pieces.append((at, item.data))
        elif isinstance(item, ImageItem) and sees and message.role == "user":
            pictures.append(PictureItem(at, item.data))
        else:
            raise _not_understood(at, item)
    return pieces, pictures


def _not_understood(where: str, item: Item) -> ProtocolError:
    names = {
        "image": "pictures are",
        "video": "video is",
        "audio": "audio of this role is",
        "text": "text is",
    }
    return ProtocolError(
        f"{where}: {names[item.type]} not understood by this deployment's language model",
        code="unsupported",
        param=where,
    )


def _checked(adapter: TypeAdapter[T], message: Message) -> T:
    try:
        return adapter.validate_python(message)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)[:5]
        text = "; ".join(f"{_place(fault['loc'])}{fault['msg']}" for fault in faults)
        raise ProtocolError(
            text, code="invalid_payload", param=_place(faults[0]["loc"]).rstrip(": ") or None
        ) from error


def _place(loc: Sequence[int | str]) -> str:
    return f"{'.'.join(map(str, loc))}: " if loc else ""


# Messages of the server.


def prefill_done(cached: int | None, read: int | None, **more: Any) -> Message:
    """Return the message that the question has been processed.

    Args:
        cached: number of its tokens that were in the cache; None: unknown.
        read: number of tokens that were read anew; None: unknown.
        **more: further fields.
    """
    return {"type": "prefill_done", "cached_tokens": cached, "input_tokens": read, **more}


def error(text: str, code: str = "") -> Message:
    """Return the message for a request that was refused or failed."""
    return {"type": "error", "error": text, **({"code": code} if code else {})}
