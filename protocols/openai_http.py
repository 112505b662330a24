"""Bodies of OpenAI's speech and transcriptions, and the form of its errors (chat: ``openai_chat``).

Field names are those of OpenAI's documents. A field that would change the answer and is not supported raises
an ``OpenAiHttpError`` that names it. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.core.errors import AgentError
from parley.core.media import WordTime
from parley.core.speech_formats import SPEECH_FORMATS, SpeechFormat

# Of OpenAI's speech API.
MOST_SPEECH_CHARS = 4_096
INVALID = "invalid_request_error"
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


class GivenModel(BaseModel):
    """Base of the objects of a request; unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


# Speech.


class VoiceId(GivenModel):
    """Voice by its id."""

    id: str = Field(max_length=200)


class SpeechRequest(GivenModel):
    """Body of ``POST /v1/audio/speech``."""

    model: str = Field(max_length=200)
    input: str = Field(min_length=1, max_length=MOST_SPEECH_CHARS)
    voice: Annotated[str, Field(max_length=200)] | VoiceId
    response_format: str = Field("mp3", max_length=40)
    speed: float = Field(1.0, ge=0.25, le=4.0)
    stream_format: str | None = Field("audio", max_length=40)

    @property
    def voice_name(self) -> str:
        """Name of the voice."""
        return self.voice if isinstance(self.voice, str) else self.voice.id

    def checked_format(self, voices: VoiceNames = NO_VOICES) -> SpeechFormat:
        """Return the format of the file, after the checks that no schema makes.

        Args:
            voices: names of the voices that speak.

        Raises:
            OpenAiHttpError: an unknown voice or format, or a speed that the voice does not have.
        """
        if voices.find(self.voice_name) is None:
            raise _invalid("voice", self.voice_name, (*voices.names, *sorted(voices.aliases)))
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
