"""Text-to-speech services, of Pipecat and of ours, as rows.

Cartesia streams over a socket that the service owns and sends word times. The others send a request for each
text over the process's HTTP session. Voices that run in this process are engines of ``models.tts``.
"""

from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

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
from parley.processors.speech.audio_deadlines import AudioDeadlines

if TYPE_CHECKING:
    from pipecat.services.tts_service import TTSService

TTS_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "tts service",
    {
        "cartesia": Row(f"{__name__}:Cartesia", "cloud, streaming, word times", env=("CARTESIA_API_KEY",)),
        "openai_speech": Row(
            f"{__name__}:OpenAiSpeech",
            "any server with OpenAI's speech endpoint: Kokoro-FastAPI, Orpheus, vLLM-Omni, OpenAI",
        ),
        "xtts": Row(
            f"{__name__}:Xtts",
            "your own XTTS server; deprecated by Pipecat and to be removed in its version 2",
        ),
    },
)


class CartesiaSettings(RowSettings):
    """Settings of Cartesia.

    Attributes:
        voice: the provider's voice id.
        model: the provider's model name.
        language: BCP 47 base code.
        url: the provider's socket.
        api_key_env: the environment variable that holds the key.
    """

    voice: str = Field(min_length=1)
    model: str = "sonic-3.6"
    language: str = "en"
    url: str = "wss://api.cartesia.ai/tts/websocket"
    api_key_env: str = "CARTESIA_API_KEY"


class Cartesia(ServiceRow[CartesiaSettings]):
    """Streaming synthesis in the cloud with word times."""

    name = "cartesia"
    settings_type = CartesiaSettings

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from pipecat.services.cartesia.tts import CartesiaTTSService

        return CartesiaTTSService(
            api_key=secret(self.name, self.settings.api_key_env),
            url=self.settings.url,
            settings=CartesiaTTSService.Settings(
                model=self.settings.model, voice=self.settings.voice, language=self.settings.language
            ),
        )


class StreamedVoiceSettings(RowSettings):
    """Deadlines of a voice that streams the audio of each text in an answer.

    Attributes:
        first_audio_ms: longest wait for the first audio of a text; longer than a whole sentence takes where
            the server sends no audio before it has all of it.
        next_audio_ms: longest wait for more audio of it.
    """

    first_audio_ms: int = Field(default=2_000, ge=100, le=30_000)
    next_audio_ms: int = Field(default=1_000, ge=100, le=30_000)

    @property
    def deadlines(self) -> AudioDeadlines:
        """The deadlines."""
        return AudioDeadlines(self.first_audio_ms / 1000, self.next_audio_ms / 1000)


def audio_deadlines(row: ServiceRow[Any]) -> AudioDeadlines | None:
    """Return the deadlines of a voice's audio; None where its settings have none."""
    settings = row.settings
    return settings.deadlines if isinstance(settings, StreamedVoiceSettings) else None


class OpenAiSpeechSettings(StreamedVoiceSettings):
    """Settings of a server with OpenAI's speech endpoint.

    Attributes:
        base_url: address of the server, up to and including ``/v1``.
        model: the name that the server serves it under.
        voice: the server's name of the voice.
        api_key_env: the environment variable that holds the key, or None for a server without keys.
        rate_hz: rate of the server's PCM; a WAV file names its own.
        extra_body: further fields of each request, e.g. ``{stream: true}`` for vLLM-Omni, which otherwise
            sends no audio before it has all of it, or ``{speed: 1.1}``.
    """

    base_url: str = Field(pattern=r"^https?://")
    model: str = Field(min_length=1)
    voice: str = Field(min_length=1)
    api_key_env: str | None = None
    rate_hz: int = Field(default=24_000, ge=8_000, le=48_000)
    extra_body: dict[str, Any] = Field(default_factory=dict)

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, value: dict[str, Any]) -> dict[str, Any]:
        taken = {"input", "model", "voice", "response_format"} & set(value)
        if taken:
            raise ValueError(f"fields that Parley sends itself: {', '.join(sorted(taken))}")
        return value


class OpenAiSpeech(ServiceRow[OpenAiSpeechSettings]):
    """Synthesis by any server with OpenAI's speech endpoint; needs the process's HTTP session."""

    name = "openai_speech"
    settings_type = OpenAiSpeechSettings

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        from parley.processors.speech.openai_speech import OpenAiSpeechService

        settings, env = self.settings, self.settings.api_key_env
        return OpenAiSpeechService(
            http_session(self.name, shared),
            base_url=settings.base_url,
            model=settings.model,
            voice=settings.voice,
            api_key=None if env is None else secret(self.name, env),
            rate_hz=settings.rate_hz,
            more=settings.extra_body,
            deadlines=settings.deadlines,
        )


class XttsSettings(RowSettings):
    """Settings of a Coqui XTTS streaming server.

    Attributes:
        voice: a studio speaker of the server.
        base_url: address of the server.
        language: BCP 47.
    """

    voice: str = Field(min_length=1)
    base_url: str = "http://localhost:8020"
    language: str = "en"


class Xtts(ServiceRow[XttsSettings]):
    """Synthesis by an own server; needs the process's HTTP session."""

    name = "xtts"
    settings_type = XttsSettings

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        if shared.http is None:
            raise ConfigError(f"{self.name!r} needs an HTTP session, which this process has not opened")
        from pipecat.services.xtts.tts import XTTSService
        from pipecat.transcriptions.language import Language

        return XTTSService(
            base_url=self.settings.base_url.rstrip("/"),
            aiohttp_session=shared.http,
            settings=XTTSService.Settings(
                voice=self.settings.voice, language=Language(self.settings.language)
            ),
        )
