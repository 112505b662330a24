"""Full-duplex services that Pipecat ships, as rows: one model that hears, decides and speaks.

A row builds the service of one call and says what is different about it: who tells where the caller's turn
begins and ends, how it takes what was said before the call and the greeting, and whether its audio is one
stream with silence in it. ``pipelines.realtime`` puts the parts around it that follow from that.

The defaults are the providers' own turn detection on, written words of both sides on (the session is made of
them), and nothing kept at the provider.
"""

import datetime
import sys
import uuid
from abc import abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from core.errors import ConfigError
from core.registry import Registry, Row
from processors.service_rows import NOTHING_SHARED, RowSettings, S, ServiceRow, Shared, secret

if TYPE_CHECKING:
    from pipecat.services.llm_service import LLMService

REALTIME_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "realtime service",
    {
        "openai_realtime": Row(
            f"{__name__}:OpenAiRealtime", "OpenAI's Realtime API, speech to speech", env=("OPENAI_API_KEY",)
        ),
        "openai_live": Row(
            f"{__name__}:OpenAiLive", "OpenAI's Live API, talks and listens at once", env=("OPENAI_API_KEY",)
        ),
        "gemini_live": Row(
            f"{__name__}:GeminiLive",
            "Google's Gemini Live, speech to speech",
            extra="google",
            env=("GOOGLE_API_KEY",),
        ),
        "nova_sonic": Row(
            f"{__name__}:NovaSonic",
            "Amazon's Nova Sonic, speech to speech; not on Python 3.11",
            env=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ),
        "ultravox": Row(
            f"{__name__}:Ultravox", "Ultravox's cloud, speech to speech", env=("ULTRAVOX_API_KEY",)
        ),
    },
)


class Turns(StrEnum):
    """Who says where a turn of the caller begins and ends."""

    SERVICE = "service"
    """The service proposes it, and what it proposes interrupts the bot."""
    SERVICE_ALONE = "service_alone"
    """The service proposes it, and falls silent by itself where it is to."""
    VOICE = "voice"
    """The service does not say it, and interrupts the bot itself: voice activity here says it for clients."""


class Opening(StrEnum):
    """How the service is told what was said before, and what it is to greet with."""

    CONTEXT = "context"
    """With a first context; a developer message at its end is answered."""
    ANSWERED_CONTEXT = "answered_context"
    """The same, but a first context is answered whatever it ends with."""
    INSTRUCTIONS = "instructions"
    """It takes no context: all stands in its instructions."""


class Typing(StrEnum):
    """How the service is given what the caller typed."""

    MESSAGES = "messages"
    """As messages of the conversation, and asked to answer."""
    TEXT = "text"
    """As the caller's text, which it answers by itself."""
    NONE = "none"
    """It has no way in for them."""


class RealtimeRow(ServiceRow[S]):
    """A row of ``REALTIME_SERVICES``.

    Attributes:
        turns: who says where a turn of the caller begins and ends.
        opening: how it takes what was said before.
        continuous: its audio is one stream, silence included, and says nothing of where a reply begins.
        typing: how it is given what the caller typed.
    """

    turns: ClassVar[Turns]
    opening: ClassVar[Opening]
    continuous: ClassVar[bool] = False
    typing: ClassVar[Typing] = Typing.MESSAGES

    @abstractmethod
    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``ServiceRow.build``. ``system_instruction``: how the bot is to answer."""


class OpenAiRealtimeSettings(RowSettings):
    """OpenAI's Realtime API.

    Attributes:
        model: the provider's model name.
        voice: None leaves the provider's own.
        base_url: where the WebSocket is; the model is added to it.
        api_key_env: the environment variable that holds the key.
        transcription: the model that writes down what the caller says; without it no turn of the caller
            would be in the session.
        language: of the caller, as ISO 639-1; None has it found out.
        turn_detection: by silence, or by what was said as well.
        threshold: of the silence detector, 0 to 1.
        silence_ms: after which the silence detector takes the turn for ended.
        eagerness: of the other one.
        noise_reduction: at the provider; None where the microphone's own is enough.
        max_output_tokens: longest answer; None leaves the provider's own.
    """

    model: str = Field(default="gpt-realtime-2.1", min_length=1)
    voice: str | None = "marin"
    base_url: str = "wss://api.openai.com/v1/realtime"
    api_key_env: str = "OPENAI_API_KEY"
    transcription: str = Field(default="gpt-realtime-whisper", min_length=1)
    language: str | None = None
    turn_detection: Literal["server_vad", "semantic_vad"] = "server_vad"
    threshold: float = Field(default=0.5, ge=0.0, le=1.0)
    silence_ms: int = Field(default=500, ge=100, le=5_000)
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"
    noise_reduction: Literal["near_field", "far_field"] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1, le=4_096)


class OpenAiRealtime(RealtimeRow[OpenAiRealtimeSettings]):
    """Through Pipecat's service, over a WebSocket."""

    name = "openai_realtime"
    settings_type = OpenAiRealtimeSettings
    turns = Turns.SERVICE
    opening = Opening.ANSWERED_CONTEXT

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``RealtimeRow.build``."""
        self.check()
        from pipecat.services.openai.realtime import events

        from processors.duplex.openai_realtime import InterruptedRealtimeService

        settings = self.settings
        by_silence = settings.turn_detection == "server_vad"
        heard = events.AudioInput(
            format=events.PCMAudioFormat(),
            transcription=events.InputAudioTranscription(
                model=settings.transcription, language=settings.language
            ),
            noise_reduction=(
                events.InputAudioNoiseReduction(type=settings.noise_reduction)
                if settings.noise_reduction
                else None
            ),
            turn_detection=(
                events.TurnDetection(threshold=settings.threshold, silence_duration_ms=settings.silence_ms)
                if by_silence
                else events.SemanticTurnDetection(
                    eagerness=settings.eagerness, create_response=True, interrupt_response=True
                )
            ),
        )
        said = events.AudioOutput(format=events.PCMAudioFormat(), voice=settings.voice)
        return InterruptedRealtimeService(
            api_key=secret(self.name, settings.api_key_env),
            base_url=settings.base_url,
            settings=InterruptedRealtimeService.Settings(
                model=settings.model,
                system_instruction=system_instruction,
                session_properties=events.SessionProperties(
                    output_modalities=["audio"],
                    audio=events.AudioConfiguration(input=heard, output=said),
                    max_output_tokens=settings.max_output_tokens,
                ),
            ),
        )


class OpenAiLiveSettings(RowSettings):
    """OpenAI's Live API.

    Attributes:
        model: None for the one that Pipecat takes.
        voice: None leaves the provider's own.
        base_url: where the WebSocket is.
        api_key_env: the environment variable that holds the key.
        store: have the provider keep the conversation.
    """

    model: str | None = None
    voice: str | None = None
    base_url: str = "wss://api.openai.com/v1/live/sessions"
    api_key_env: str = "OPENAI_API_KEY"
    store: bool = False


class OpenAiLive(RealtimeRow[OpenAiLiveSettings]):
    """Through Pipecat's service. What the model would have done elsewhere (a delegation) is declined."""

    name = "openai_live"
    settings_type = OpenAiLiveSettings
    turns = Turns.SERVICE_ALONE
    opening = Opening.CONTEXT
    continuous = True
    typing = Typing.NONE

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``RealtimeRow.build``."""
        self.check()
        from pipecat.services.openai.live.llm import OpenAILiveLLMService

        settings = self.settings
        fields: dict[str, Any] = {
            "system_instruction": system_instruction,
            "voice": settings.voice,
            "store": settings.store,
        }
        if settings.model is not None:
            fields["model"] = settings.model
        return OpenAILiveLLMService(
            api_key=secret(self.name, settings.api_key_env),
            base_url=settings.base_url,
            settings=OpenAILiveLLMService.Settings(**fields),
        )


class GeminiLiveSettings(RowSettings):
    """Google's Gemini Live.

    Attributes:
        model: None for the one that Pipecat takes.
        voice: the provider's voice name.
        language: of the conversation, as the provider writes it.
        base_url: None for the provider's own.
        api_key_env: the environment variable that holds the key.
        silence_ms: after which the provider takes a turn for ended; None leaves its own.
    """

    model: str | None = None
    voice: str = "Charon"
    language: str = "en-US"
    base_url: str | None = None
    api_key_env: str = "GOOGLE_API_KEY"
    silence_ms: int | None = Field(default=None, ge=100, le=5_000)


class GeminiLive(RealtimeRow[GeminiLiveSettings]):
    """Through Google's SDK, which comes back by itself when its connection breaks."""

    name = "gemini_live"
    settings_type = GeminiLiveSettings
    package = "google.genai"
    extra = "google"
    turns = Turns.VOICE
    opening = Opening.CONTEXT

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``RealtimeRow.build``."""
        self.check()
        from google.genai.types import HttpOptions  # type: ignore[import-untyped,unused-ignore]
        from pipecat.services.google.gemini_live.llm import GeminiLiveLLMService, GeminiVADParams

        settings = self.settings
        fields: dict[str, Any] = {
            "system_instruction": system_instruction,
            "voice": settings.voice,
            "language": settings.language,
        }
        if settings.model is not None:
            fields["model"] = settings.model
        if settings.silence_ms is not None:
            fields["vad"] = GeminiVADParams(silence_duration_ms=settings.silence_ms)
        service: LLMService[Any] = GeminiLiveLLMService(
            api_key=secret(self.name, settings.api_key_env),
            http_options=HttpOptions(base_url=settings.base_url) if settings.base_url else None,
            settings=GeminiLiveLLMService.Settings(**fields),
        )
        return service


class NovaSonicSettings(RowSettings):
    """Amazon's Nova Sonic.

    Attributes:
        model: the provider's model name.
        voice: the provider's voice name.
        region: where the model is hosted.
        access_key_id_env: the environment variable that holds the id of the access key.
        secret_access_key_env: the environment variable that holds the access key.
        session_token_env: the environment variable that holds a token of temporary credentials; None for
            lasting ones.
        max_tokens: longest answer.
        endpointing: how soon a turn is taken for ended; None leaves the provider's own.
    """

    model: str = Field(default="amazon.nova-2-5-sonic", min_length=1)
    voice: str = "matthew"
    region: str = Field(default="us-east-1", min_length=1)
    access_key_id_env: str = "AWS_ACCESS_KEY_ID"
    secret_access_key_env: str = "AWS_SECRET_ACCESS_KEY"
    session_token_env: str | None = None
    max_tokens: int = Field(default=1_024, ge=1, le=8_192)
    endpointing: Literal["LOW", "MEDIUM", "HIGH"] | None = None


class NovaSonic(RealtimeRow[NovaSonicSettings]):
    """Through Amazon's SDK for Bedrock: refused on Python 3.11, for which Amazon has no release."""

    name = "nova_sonic"
    settings_type = NovaSonicSettings
    package = "aws_sdk_bedrock_runtime"
    turns = Turns.VOICE
    opening = Opening.CONTEXT

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """See ``ServiceRow.secret_envs``."""
        settings = self.settings
        envs = (settings.access_key_id_env, settings.secret_access_key_env, settings.session_token_env)
        return tuple(env for env in envs if env is not None)

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        if sys.version_info < (3, 12):
            raise ConfigError(
                f"{self.name!r} cannot run here: Amazon's SDK needs Python 3.12 or newer and Parley runs on "
                f"Python 3.11; choose another duplex.engine"
            )
        super().check()

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``RealtimeRow.build``."""
        self.check()
        from pipecat.services.aws.nova_sonic.llm import AWSNovaSonicLLMService

        settings = self.settings
        token_env = settings.session_token_env
        return AWSNovaSonicLLMService(
            access_key_id=secret(self.name, settings.access_key_id_env),
            secret_access_key=secret(self.name, settings.secret_access_key_env),
            session_token=None if token_env is None else secret(self.name, token_env),
            region=settings.region,
            settings=AWSNovaSonicLLMService.Settings(
                model=settings.model,
                voice=settings.voice,
                system_instruction=system_instruction,
                max_tokens=settings.max_tokens,
                endpointing_sensitivity=settings.endpointing,
            ),
        )


class UltravoxSettings(RowSettings):
    """Ultravox's cloud.

    Attributes:
        model: None leaves the provider's own.
        voice: id of a voice of the provider; None leaves its own.
        temperature: of the answers.
        max_duration_s: longest call.
        api_key_env: the environment variable that holds the key.
    """

    model: str | None = None
    voice: uuid.UUID | None = None
    temperature: float = Field(default=0.0, ge=0.0, le=1.0)
    max_duration_s: int = Field(default=3_600, ge=10, le=3_600)
    api_key_env: str = "ULTRAVOX_API_KEY"


class Ultravox(RealtimeRow[UltravoxSettings]):
    """Through Pipecat's service: one call of the provider for each call. Its address cannot be chosen."""

    name = "ultravox"
    settings_type = UltravoxSettings
    package = "aiohttp"
    turns = Turns.VOICE
    opening = Opening.INSTRUCTIONS
    typing = Typing.TEXT

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """See ``RealtimeRow.build``."""
        self.check()
        from pipecat.services.ultravox.llm import OneShotInputParams, UltravoxRealtimeLLMService

        settings = self.settings
        return UltravoxRealtimeLLMService(
            params=OneShotInputParams(
                api_key=secret(self.name, settings.api_key_env),
                system_prompt=system_instruction,
                temperature=settings.temperature,
                model=settings.model,
                voice=settings.voice,
                max_duration=datetime.timedelta(seconds=settings.max_duration_s),
            )
        )
