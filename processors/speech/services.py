"""Text-to-speech services, of Pipecat and of ours, as rows.

Cartesia streams over a socket that the service owns and sends word times. The others send a request for each
text over the process's HTTP session. Voices that run in this process are engines of ``models.tts``.
"""

from typing import TYPE_CHECKING, Any

from loguru import logger
from pydantic import Field, field_validator, model_validator

from parley.core.errors import PeerError
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

    from parley.processors.speech.xtts import XttsSpeaker

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
            "your own XTTS streaming server: its speakers, or an imitation of a reference voice",
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


class XttsSettings(StreamedVoiceSettings):
    """Settings of a Coqui XTTS streaming server.

    Attributes:
        voice: one of the server's own speakers, or None.
        reference_voice: id or name of a reference voice (``/api/assets/ref_audio``), which the server
            imitates, in place of ``voice``.
        base_url: address of the server.
        language: BCP 47; the server has sixteen languages.
    """

    voice: str | None = Field(default=None, min_length=1)
    reference_voice: str | None = Field(default=None, min_length=1, max_length=100)
    base_url: str = Field(default="http://localhost:8020", pattern=r"^https?://")
    language: str = Field(default="en", min_length=2)

    @model_validator(mode="after")
    def _check_speaker(self) -> "XttsSettings":
        if (self.voice is None) == (self.reference_voice is None):
            raise ValueError("name either a voice of the server or a reference_voice")
        return self

    @property
    def server_language(self) -> str:
        """The server's code of the language, which has no region, except that of Chinese."""
        language = self.language.lower()
        return language if language.startswith("zh") else language.partition("-")[0]


class Xtts(ServiceRow[XttsSettings]):
    """Synthesis by an own server; needs the process's HTTP session."""

    name = "xtts"
    settings_type = XttsSettings

    def __init__(self, settings: XttsSettings) -> None:
        super().__init__(settings)
        # One for all calls.
        self._speaker: XttsSpeaker | None = None

    @property
    def speaker(self) -> "XttsSpeaker":
        """The speaker, shared by all calls."""
        from parley.processors.speech.xtts import XttsSpeaker

        if self._speaker is None:
            chosen = self.settings
            self._speaker = XttsSpeaker(chosen.base_url, voice=chosen.voice, reference=chosen.reference_voice)
        return self._speaker

    async def prepare(self, shared: Shared) -> None:
        """Request the speaker; see ``ServiceRow.prepare``."""
        try:
            await self.speaker.members(http_session(self.name, shared), shared.reference_voices)
        except PeerError as error:
            logger.warning(f"the voice {self.name} has no speaker yet: {error}")

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """Build the service; see ``ServiceRow.build``."""
        self.check()
        http = http_session(self.name, shared)
        from parley.processors.speech.xtts import XttsService

        return XttsService(
            http,
            base_url=self.settings.base_url,
            speaker=self.speaker,
            voices=shared.reference_voices,
            language=self.settings.server_language,
            deadlines=self.settings.deadlines,
        )
