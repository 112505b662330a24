"""Bodies of OpenAI's HTTP API: chat completions, speech and transcriptions, and the form of its errors.

Field names are those of OpenAI's documents. A field that would change the answer and is not supported raises
an ``OpenAiHttpError`` that names it. Fields that tune a model (temperature, the number of tokens) are
accepted without effect, as in the realtime protocol: the deployment has its own. Pure: base64 of pictures is
not decoded here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from parley.core.errors import AgentError
from parley.core.media import WordTime
from parley.core.pictures import MEDIA_TYPES, PictureFile
from parley.core.speech_formats import SPEECH_FORMATS, SpeechFormat

MOST_MESSAGES, MOST_PARTS, MOST_CHARS = 512, 64, 32_768
# Each is decoded once, by one thread for all clients.
MOST_PICTURES = 16
# Of OpenAI's speech API.
MOST_SPEECH_CHARS = 4_096
# Base64; the length of the whole body usually applies first.
MOST_URL_CHARS = 100_000_000
VOICE = "parley"
OWN_TOOLS = "Tools are the deployment's, and run on the server"
INVALID = "invalid_request_error"
_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.ASCII)
# A pause or a length after which a caption ends.
CAPTION_PAUSE_MS, CAPTION_MS = 600, 6_000

TranscriptFormat = Literal["json", "text", "srt", "verbose_json", "vtt"]


class OpenAiHttpError(AgentError):
    """A request is refused, or its answer failed.

    Attributes:
        status: of the answer.
        param: field that is refused; None where it is no single one.
        code: reason, for programs.
        kind: ``type`` of the error object.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        kind: str = INVALID,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.kind = kind


def error_body(
    message: str, *, kind: str = INVALID, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """Return the object of an error, as OpenAI's clients read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def check_model(model: str, known: Sequence[str]) -> None:
    """Check that a model is served.

    Raises:
        OpenAiHttpError: 404, it is not.
    """
    if model not in known:
        raise OpenAiHttpError(
            f"The model `{model[:64]}` does not exist or you do not have access to it. "
            f"Known: {', '.join(known)}.",
            status=404,
            param="model",
            code="model_not_found",
        )


# Chat completions.


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class TextPart(_Given):
    """Text of a message."""

    type: Literal["text"]
    text: str = Field(max_length=MOST_CHARS)


class ImageUrl(_Given):
    """Address of a picture, which holds the picture itself."""

    url: str = Field(max_length=MOST_URL_CHARS)


class ImagePart(_Given):
    """Picture of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class OtherPart(_Given):
    """Part of a kind that no model here takes."""

    type: Literal["input_audio", "file", "refusal", "video_url"]


Part = Annotated[TextPart | ImagePart | OtherPart, Field(discriminator="type")]


class CompletionMessage(_Given):
    """Entry of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: (
        Annotated[str, Field(max_length=MOST_CHARS)]
        | Annotated[tuple[Part, ...], Field(max_length=MOST_PARTS)]
        | None
    ) = None
    tool_calls: tuple[dict[str, Any], ...] | None = Field(None, max_length=128)

    @property
    def parts(self) -> tuple[TextPart | ImagePart | OtherPart, ...]:
        """Content as parts."""
        if isinstance(self.content, str):
            return (TextPart(type="text", text=self.content),)
        return self.content or ()


class StreamOptions(_Given):
    """Options of a streamed answer."""

    include_usage: bool | None = False


class CompletionRequest(_Given):
    """Body of ``POST /v1/chat/completions``."""

    model: str = Field(max_length=200)
    messages: tuple[CompletionMessage, ...] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: tuple[dict[str, Any], ...] | None = Field(None, max_length=128)
    functions: tuple[dict[str, Any], ...] | None = Field(None, max_length=128)
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: tuple[str, ...] | None = Field(None, max_length=8)
    logprobs: bool | None = False
    stop: str | tuple[str, ...] | None = None
    metadata: dict[str, str] | None = None

    @property
    def session_id(self) -> str | None:
        """Session that ``metadata`` names; None for none."""
        return (self.metadata or {}).get("session")


@dataclass(frozen=True, slots=True)
class CompletionTurn:
    """Message of a dialogue that a client shows.

    Attributes:
        role: author.
        text: its words.
        pictures: its pictures, in order.
    """

    role: Literal["user", "assistant"]
    text: str
    pictures: tuple[PictureFile, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionParts:
    """Request, divided into its parts.

    Attributes:
        instruction: system prompt of the client; None where it sends none.
        turns: messages of the dialogue; the last one is the user's.
        is_whole: true when the messages are the whole conversation as the client shows it. A single message
            is the next one of the session.
    """

    instruction: str | None
    turns: tuple[CompletionTurn, ...]
    is_whole: bool


def completion_parts(request: CompletionRequest) -> CompletionParts:
    """Divide a request into its parts.

    Raises:
        OpenAiHttpError: a field or a message that has no meaning here.
    """
    _check_options(request)
    instructions: list[str] = []
    turns: list[CompletionTurn] = []
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if message.role in ("tool", "function") or message.tool_calls:
            raise OpenAiHttpError(
                f"Unsupported value: '{where}' belongs to a tool of the client, and this deployment's tools "
                "run on the server.",
                param=where,
                code="unsupported_value",
            )
        text, pictures = _content(message, where)
        if message.role in ("system", "developer"):
            instructions.append(text)
        elif text or pictures:
            role: Literal["user", "assistant"] = "user" if message.role == "user" else "assistant"
            turns.append(CompletionTurn(role, text, pictures))
    if not turns or turns[-1].role != "user":
        raise OpenAiHttpError(
            "Invalid value: 'messages'. The last message must be the user's, and not empty.",
            param="messages",
            code="invalid_value",
        )
    if sum(len(turn.pictures) for turn in turns) > MOST_PICTURES:
        raise OpenAiHttpError(
            f"Invalid value: 'messages'. There may be {MOST_PICTURES} pictures in a request.",
            param="messages",
            code="invalid_value",
        )
    instruction = "\n\n".join(text for text in instructions if text)
    return CompletionParts(instruction or None, tuple(turns), is_whole=len(turns) > 1)


def _check_options(request: CompletionRequest) -> None:
    form = (request.response_format or {}).get("type", "text")
    calls = request.tool_choice != "none"
    refused = (
        ("n", request.n not in (None, 1), "There is one answer to a turn"),
        ("tools", calls and bool(request.tools), OWN_TOOLS),
        ("functions", bool(request.functions), OWN_TOOLS),
        ("response_format", form != "text", "Answers are text"),
        ("modalities", set(request.modalities or ("text",)) != {"text"}, "Answers are text"),
        ("logprobs", bool(request.logprobs), "Models report no probabilities here"),
        ("stop", bool(request.stop), "An answer ends by itself"),
    )
    for name, is_refused, why in refused:
        if is_refused:
            raise OpenAiHttpError(
                f"Unsupported parameter: '{name}' is not supported with this model. {why}.",
                param=name,
                code="unsupported_parameter",
            )


def _content(message: CompletionMessage, where: str) -> tuple[str, tuple[PictureFile, ...]]:
    texts: list[str] = []
    pictures: list[PictureFile] = []
    for place, part in enumerate(message.parts):
        at = f"{where}.content[{place}]"
        if isinstance(part, TextPart):
            texts.append(part.text.strip())
        elif isinstance(part, ImagePart) and message.role == "user":
            pictures.append(_picture(part.image_url.url, at))
        else:
            raise OpenAiHttpError(
                f"Invalid content type: '{at}' is of a type that this model does not take for this role.",
                param=at,
                code="invalid_value",
            )
    return "\n".join(text for text in texts if text), tuple(pictures)


def _picture(url: str, at: str) -> PictureFile:
    match = _DATA_URL.match(url)
    if match is None or match.group(1) not in MEDIA_TYPES:
        raise OpenAiHttpError(
            f"Invalid image: '{at}' must be a data URL of {', '.join(MEDIA_TYPES)}. This server fetches no "
            "addresses.",
            param=at,
            code="invalid_image_url",
        )
    return PictureFile(url[match.end() :], match.group(1))


@dataclass(frozen=True, slots=True)
class Completion:
    """Answer that is being sent, for the objects of its events.

    Attributes:
        id: of the answer.
        created_s: Unix time.
        model: as the client named it.
        facts: our own facts about it, as the field ``parley``.
    """

    id: str
    created_s: int
    model: str
    facts: Mapping[str, object]

    def chunk(self, delta: Mapping[str, object], finish: str | None = None) -> dict[str, object]:
        """Return an event of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, usage: object) -> dict[str, object]:
        """Return the event with the tokens of a streamed answer."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self, text: str, usage: object, more: Mapping[str, object]) -> dict[str, object]:
        """Return a whole answer."""
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        head = self._head("chat.completion")
        head["parley"] = {**self.facts, **more}
        return {**head, "choices": [choice], "usage": usage}

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "parley": self.facts,
        }


# Speech.


class VoiceId(_Given):
    """Voice by its id."""

    id: str = Field(max_length=200)


class SpeechRequest(_Given):
    """Body of ``POST /v1/audio/speech``."""

    model: str = Field(max_length=200)
    input: str = Field(min_length=1, max_length=MOST_SPEECH_CHARS)
    voice: Annotated[str, Field(max_length=200)] | VoiceId
    response_format: str = Field("mp3", max_length=40)
    speed: float = Field(1.0, ge=0.25, le=4.0)
    stream_format: str | None = Field("audio", max_length=40)

    def checked_format(self) -> SpeechFormat:
        """Return the format of the file, after the checks that no schema makes.

        Raises:
            OpenAiHttpError: an unknown voice or format, or a speed that the voice does not have.
        """
        voice = self.voice if isinstance(self.voice, str) else self.voice.id
        if voice != VOICE:
            raise _invalid("voice", voice, [VOICE])
        if (self.stream_format or "audio") != "audio":
            raise _invalid("stream_format", str(self.stream_format), ["audio"])
        if self.speed != 1.0:
            raise _invalid("speed", f"{self.speed:g}", ["1.0"])
        for known in SPEECH_FORMATS:
            if self.response_format == known:
                return known
        raise _invalid("response_format", self.response_format, SPEECH_FORMATS)


def _invalid(param: str, value: str, known: Sequence[str]) -> OpenAiHttpError:
    names = ", ".join(f"'{name}'" for name in known)
    return OpenAiHttpError(
        f"Invalid value: '{value[:64]}'. Supported values for '{param}' are: {names}.",
        param=param,
        code="invalid_value",
    )


# Transcriptions.


@dataclass(frozen=True, slots=True)
class RecordingText:
    """Words of a recording.

    Attributes:
        text: all of them.
        words: the same with times; empty where the recogniser reports none.
        duration_s: length of the recording.
        language: ISO code of the language that was recognised.
    """

    text: str
    words: tuple[WordTime, ...]
    duration_s: float
    language: str


@dataclass(frozen=True, slots=True)
class CaptionedWords:
    """Words of a recording that are shown together."""

    text: str
    start_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """Form of a transcript.

    Attributes:
        form: of the answer.
        words: times of words are part of ``verbose_json``.
        captions: times of segments are.
    """

    form: TranscriptFormat
    words: bool
    captions: bool


def transcription_options(
    fields: Sequence[tuple[str, str]], *, models: Sequence[str], language: str
) -> TranscriptionOptions:
    """Check the fields of a ``POST /v1/audio/transcriptions`` other than its file.

    Args:
        fields: names and values, in order.
        models: that are served.
        language: ISO code of the language that callers speak.

    Raises:
        OpenAiHttpError: a field that is missing, unknown or not supported.
    """
    given = dict(fields)
    if "model" not in given:
        raise OpenAiHttpError("you must provide a model parameter", param="model")
    check_model(given["model"], models)
    if (spoken := given.get("language", "")) and spoken.partition("-")[0].lower() != language:
        raise _invalid("language", spoken, [language])
    if given.get("stream", "false").lower() == "true":
        raise OpenAiHttpError(
            "Unsupported parameter: 'stream' is not supported with this model.",
            param="stream",
            code="unsupported_parameter",
        )
    forms: tuple[TranscriptFormat, ...] = ("json", "text", "srt", "verbose_json", "vtt")
    form = given.get("response_format", "json")
    found = next((each for each in forms if each == form), None)
    if found is None:
        raise _invalid("response_format", form, forms)
    asked = {
        value for name, value in fields if name in ("timestamp_granularities[]", "timestamp_granularities")
    }
    if asked - {"word", "segment"}:
        raise _invalid("timestamp_granularities", min(asked - {"word", "segment"}), ["word", "segment"])
    if asked and found != "verbose_json":
        raise OpenAiHttpError(
            "Invalid value: 'timestamp_granularities' needs response_format 'verbose_json'.",
            param="timestamp_granularities",
            code="invalid_value",
        )
    return TranscriptionOptions(found, words="word" in asked, captions=not asked or "segment" in asked)


def transcription_body(said: RecordingText, options: TranscriptionOptions) -> str | dict[str, object]:
    """Return the answer to a transcription: text, or an object for JSON."""
    match options.form:
        case "text":
            return f"{said.text}\n"
        case "srt":
            return "".join(
                f"{number}\n{_stamp(each.start_ms, ',')} --> {_stamp(each.end_ms, ',')}\n{each.text}\n\n"
                for number, each in enumerate(captions(said), 1)
            )
        case "vtt":
            cues = (
                f"{_stamp(each.start_ms, '.')} --> {_stamp(each.end_ms, '.')}\n{each.text}\n\n"
                for each in captions(said)
            )
            return "".join(("WEBVTT\n\n", *cues))
    usage = {"type": "duration", "seconds": round(said.duration_s)}
    if options.form == "json":
        return {"text": said.text, "usage": usage}
    body: dict[str, object] = {
        "task": "transcribe",
        "language": said.language,
        "duration": round(said.duration_s, 3),
        "text": said.text,
        "usage": usage,
    }
    if options.words:
        body["words"] = [
            {"word": word.text, "start": word.start_ms / 1000, "end": word.end_ms / 1000}
            for word in said.words
        ]
    if options.captions:
        body["segments"] = [_segment(number, each) for number, each in enumerate(captions(said))]
    return body


def captions(said: RecordingText) -> list[CaptionedWords]:
    """Divide the words of a recording into captions: at pauses, and where one gets long."""
    if not said.words:
        whole = CaptionedWords(said.text, 0, round(said.duration_s * 1000))
        return [whole] if said.text else []
    groups: list[list[WordTime]] = []
    for word in said.words:
        group = groups[-1] if groups else None
        if (
            group is None
            or word.start_ms - group[-1].end_ms >= CAPTION_PAUSE_MS
            or word.end_ms - group[0].start_ms > CAPTION_MS
        ):
            groups.append([word])
        else:
            group.append(word)
    return [
        CaptionedWords(" ".join(word.text for word in group), group[0].start_ms, group[-1].end_ms)
        for group in groups
    ]


def _segment(number: int, caption: CaptionedWords) -> dict[str, object]:
    # The protocol requires the figures of OpenAI's own decoder; a zero is none.
    unknown = {
        "seek": 0,
        "tokens": [],
        "temperature": 0.0,
        "avg_logprob": 0.0,
        "compression_ratio": 0.0,
        "no_speech_prob": 0.0,
    }
    times = {"start": caption.start_ms / 1000, "end": caption.end_ms / 1000}
    return {"id": number, **times, "text": caption.text, **unknown}


def _stamp(at_ms: int, point: str) -> str:
    seconds, ms = divmod(at_ms, 1000)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{point}{ms:03}"
