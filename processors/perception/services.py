"""Speech-to-text services, of Pipecat and of ours, as rows.

The rows decide nothing about turns. Every service here passes transcripts to the user aggregator. Most stream
over a socket that the service owns and closes with the pipeline; the others send a request for each voice
over the process's HTTP session. Engines of this machine are in ``models.stt``.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable
from urllib.parse import urlencode

from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row
from parley.processors.service_rows import (
    NOTHING_SHARED,
    RowSettings,
    ServiceRow,
    Shared,
    http_session,
    secret,
)

if TYPE_CHECKING:
    from pipecat.services.stt_service import STTService

# Key of the configurations that come with moshi-server.
KYUTAI_OPEN_KEY = "public_token"

STT_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "stt service",
    {
        "deepgram": Row(
            f"{__name__}:Deepgram", "cloud, streaming", extra="deepgram", env=("DEEPGRAM_API_KEY",)
        ),
        "soniox": Row(f"{__name__}:Soniox", "cloud, streaming", env=("SONIOX_API_KEY",)),
        "kyutai": Row(f"{__name__}:Kyutai", "your own moshi-server, streaming, word times", extra="kyutai"),
        "groq": Row(
            f"{__name__}:GroqStt", "Groq's cloud: Whisper, each voice as a whole", env=("GROQ_API_KEY",)
        ),
        "mistral": Row(
            f"{__name__}:Mistral", "Mistral's cloud: Voxtral, streaming", env=("MISTRAL_API_KEY",)
        ),
    },
)


class DeepgramSettings(RowSettings):
    """Settings of Deepgram.

    Attributes:
        model: the provider's model name.
        language: BCP 47.
        base_url: host of a private deployment; empty for the provider's own.
        api_key_env: the environment variable that holds the key.
        keyterms: words to expect, e.g. product names.
        speakers: tell the speakers of one line apart, in place of the specialist of that name.
    """

    model: str = "nova-3-general"
    language: str = "en"
    base_url: str = ""
    api_key_env: str = "DEEPGRAM_API_KEY"
    keyterms: tuple[str, ...] = ()
    speakers: bool = False


class Deepgram(ServiceRow[DeepgramSettings]):
    """Streaming recognition in the cloud; sends partials."""

    name = "deepgram"
    settings_type = DeepgramSettings
    package = "deepgram"
    extra = "deepgram"

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from pipecat.services.deepgram.stt import DeepgramSTTService

        fields: dict[str, Any] = {"model": self.settings.model, "language": self.settings.language}
        if self.settings.keyterms:
            fields["keyterm"] = list(self.settings.keyterms)
        if self.settings.speakers:
            fields["diarize"] = True
        return DeepgramSTTService(
            api_key=secret(self.name, self.settings.api_key_env),
            base_url=self.settings.base_url,
            settings=DeepgramSTTService.Settings(**fields),
        )


class SonioxSettings(RowSettings):
    """Settings of Soniox.

    Attributes:
        model: the provider's model name.
        language_hints: BCP 47 base codes of the languages to expect.
        url: the provider's socket.
        api_key_env: the environment variable that holds the key.
        speakers: tell the speakers of one line apart, in place of the specialist of that name.
    """

    model: str = "stt-rt-v5"
    language_hints: tuple[str, ...] = ("en",)
    url: str = "wss://stt-rt.soniox.com/transcribe-websocket"
    api_key_env: str = "SONIOX_API_KEY"
    speakers: bool = False


class Soniox(ServiceRow[SonioxSettings]):
    """Streaming recognition in the cloud. Our endpoint ends the turn, not the provider's."""

    name = "soniox"
    settings_type = SonioxSettings

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from pipecat.services.soniox.stt import SonioxSTTService
        from pipecat.transcriptions.language import Language

        try:
            hints = [Language(code) for code in self.settings.language_hints]
        except ValueError as error:
            raise ConfigError(f"{self.name!r}: {error}") from error
        return SonioxSTTService(
            api_key=secret(self.name, self.settings.api_key_env),
            url=self.settings.url,
            vad_force_turn_endpoint=True,
            settings=SonioxSTTService.Settings(
                model=self.settings.model,
                language_hints=hints or None,
                enable_speaker_diarization=self.settings.speakers,
            ),
        )


class KyutaiSettings(RowSettings):
    """Settings of Kyutai's moshi-server.

    Attributes:
        url: address of its streaming recognition.
        api_key_env: the environment variable that holds one of its ``authorized_ids``; null: the id
            ``public_token`` of the configurations that come with the server.
        delay_ms: delay of its model: 500 for ``stt-1b-en_fr``, 2500 for ``stt-2.6b-en``.
    """

    url: str = Field(default="ws://localhost:8080/api/asr-streaming", pattern=r"^wss?://")
    api_key_env: str | None = None
    delay_ms: int = Field(default=500, ge=80, le=5_000)

    @property
    def answer_s(self) -> float:
        """Deadline of the words after a voice.

        The server works through the delay at four times the speed of speech, where it is not busy; twice that
        time is allowed.
        """
        return self.delay_ms / 2_000


class Kyutai(ServiceRow[KyutaiSettings]):
    """Streaming recognition by an own server; sends partials and word times."""

    name = "kyutai"
    settings_type = KyutaiSettings
    package = "msgpack"
    extra = "kyutai"

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from parley.processors.perception.kyutai_stt import KyutaiSttService

        env = self.settings.api_key_env
        return KyutaiSttService(
            self.settings.url,
            KYUTAI_OPEN_KEY if env is None else secret(self.name, env),
            delay_ms=self.settings.delay_ms,
        )


class GroqSttSettings(RowSettings):
    """Settings of Groq's Whisper.

    Attributes:
        model: the provider's model name.
        language: code of ISO 639-1, or None to have each voice's language detected.
        prompt: words to expect, e.g. product names, in a sentence.
        base_url: address of the API, up to and including ``/v1``.
        api_key_env: the environment variable that holds the key.
        request_timeout_ms: longest wait for the words of a voice that is over, 10 s by default: as long as a
            turn waits. A request that failed is not repeated.
    """

    model: str = "whisper-large-v3-turbo"
    language: str | None = "en"
    prompt: str = ""
    base_url: str = Field(default="https://api.groq.com/openai/v1", pattern=r"^https?://")
    api_key_env: str = "GROQ_API_KEY"
    request_timeout_ms: int = Field(default=10_000, ge=500, le=10_000)

    @property
    def answer_s(self) -> float:
        """Deadline of the words after a voice."""
        return self.request_timeout_ms / 1000


class GroqStt(ServiceRow[GroqSttSettings]):
    """Recognition by Whisper in the cloud, one request for each voice; needs the process's HTTP session."""

    name = "groq"
    settings_type = GroqSttSettings
    has_partials: ClassVar[bool] = False

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from pipecat.services.stt_latency import GROQ_TTFS_P99

        from parley.processors.perception.segment_stt import SegmentSttService
        from parley.processors.perception.transcriptions import TranscriptionClient

        settings = self.settings
        # Stretches of the transcript come with their times, and with the probability that they are speech.
        fields = {"model": settings.model, "response_format": "verbose_json", "temperature": "0"}
        more = {"language": settings.language, "prompt": settings.prompt}
        client = TranscriptionClient(
            http_session(self.name, shared),
            url=f"{settings.base_url.rstrip('/')}/audio/transcriptions",
            api_key=secret(self.name, settings.api_key_env),
            fields=[*fields.items(), *((name, value) for name, value in more.items() if value)],
            timeout_s=settings.answer_s,
        )
        return SegmentSttService(client, model=settings.model, ttfs_p99_s=GROQ_TTFS_P99)


class MistralSettings(RowSettings):
    """Settings of Mistral's realtime transcription.

    Attributes:
        model: the provider's model name.
        url: the provider's socket.
        api_key_env: the environment variable that holds the key.
        delay_ms: time by which the text follows the audio, longer for fewer errors; None: the provider's own.
        final_timeout_ms: longest wait for the rest of the text of a voice that is over; what has come by then
            is final.
    """

    model: str = "voxtral-mini-transcribe-realtime-2602"
    url: str = Field(
        default="wss://api.mistral.ai/v1/audio/transcriptions/realtime", pattern=r"^wss?://[^?#]+$"
    )
    api_key_env: str = "MISTRAL_API_KEY"
    delay_ms: int | None = Field(default=None, ge=80, le=2_400)
    final_timeout_ms: int = Field(default=1_800, ge=300, le=10_000)

    @property
    def answer_s(self) -> float:
        """Deadline of the words after a voice."""
        return self.final_timeout_ms / 1000


class Mistral(ServiceRow[MistralSettings]):
    """Streaming recognition by Voxtral in the cloud; sends partials."""

    name = "mistral"
    settings_type = MistralSettings

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from parley.processors.perception.mistral_stt import MistralSttService

        settings = self.settings
        return MistralSttService(
            f"{settings.url}?{urlencode({'model': settings.model})}",
            secret(self.name, settings.api_key_env),
            model=settings.model,
            delay_ms=settings.delay_ms,
            final_s=settings.answer_s,
        )


@runtime_checkable
class HasAnswerDeadline(Protocol):
    """Settings of a recogniser with a deadline for the words after a voice."""

    @property
    def answer_s(self) -> float: ...


def answer_deadline_s(row: ServiceRow[Any]) -> float | None:
    """Return the deadline of a recogniser's words after a voice; None where it has none of its own."""
    return row.settings.answer_s if isinstance(row.settings, HasAnswerDeadline) else None
