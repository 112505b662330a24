"""Full-duplex services that Pipecat ships, as rows: one model that listens, decides and speaks.

A row builds the service of one call and states its properties: who reports where the caller's turn begins and
ends, how it takes the earlier conversation and the greeting, and whether its audio is one stream with silence
in it. ``pipelines.voice.realtime`` adds the parts that follow from these properties.

By default the providers' own turn detection is on, transcripts of both sides are on (the session is made of
them), and the provider stores nothing.
"""

import datetime
import sys
import uuid
from abc import abstractmethod
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row
from parley.processors.service_rows import NOTHING_SHARED, RowSettings, S, ServiceRow, Shared, secret

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
            extra="nova-sonic",
            env=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
        ),
        "ultravox": Row(
            f"{__name__}:Ultravox", "Ultravox's cloud, speech to speech", env=("ULTRAVOX_API_KEY",)
        ),
    },
    is_extensible=False,
)


TURN_END_MS = 1_000
# OpenAI's documented limits of the semantic detector, by eagerness; "auto" is "medium".
SEMANTIC_END_MS = {"low": 8_000, "medium": 4_000, "high": 2_000, "auto": 4_000}


class TurnSource(StrEnum):
    """Source of the beginnings and ends of the caller's turns."""

    SERVICE = "service"
    """The service proposes a turn, and its proposal interrupts the bot."""
    SERVICE_ALONE = "service_alone"
    """The service proposes a turn, and falls silent by itself where necessary."""
    VOICE = "voice"
    """The service does not report turns, and interrupts the bot itself: voice activity here reports them to
    clients.
    """


class Opening(StrEnum):
    """Way in which the service gets the earlier conversation, and the greeting."""

    CONTEXT = "context"
    """With a first context; a developer message at its end is answered."""
    ANSWERED_CONTEXT = "answered_context"
    """The same, but a first context is answered whatever it ends with."""
    INSTRUCTIONS = "instructions"
    """It takes no context: everything stands in its instructions."""


class TypedInput(StrEnum):
    """Way in which the service gets typed words of the caller."""

    MESSAGES = "messages"
    """As messages of the conversation, with a request for an answer."""
    TEXT = "text"
    """As the caller's text, which it answers by itself."""
    NONE = "none"
    """It has no input for them."""


class RealtimeRow(ServiceRow[S]):
    """A row of ``REALTIME_SERVICES``.

    Attributes:
        turns: source of the beginnings and ends of the caller's turns.
        opening: way in which it gets the earlier conversation.
        continuous: True when its audio is one stream, silence included, without marks for the beginning of a
            reply.
        typing: way in which it gets typed words.
    """

    turns: ClassVar[TurnSource]
    opening: ClassVar[Opening]
    continuous: ClassVar[bool] = False
    typing: ClassVar[TypedInput] = TypedInput.MESSAGES

    @property
    def turn_end_ms(self) -> int:
        """Longest silence after which the service ends a turn: that of most providers, if unknown."""
        return TURN_END_MS

    @abstractmethod
    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``ServiceRow.build``. ``system_instruction``: how the model answers."""


class OpenAiRealtimeSettings(RowSettings):
    """Settings of OpenAI's Realtime API.

    Attributes:
        model: the provider's model name.
        voice: None leaves the provider's own.
        base_url: address of the WebSocket; the model is added to it.
        api_key_env: the environment variable that holds the key.
        transcription: the model that transcribes the caller; without it no turn of the caller would be in the
            session.
        language: language of the caller, as ISO 639-1; None detects it.
        turn_detection: by silence, or by the words as well.
        threshold: threshold of the silence detector, 0 to 1.
        silence_ms: silence after which the silence detector ends the turn.
        eagerness: eagerness of the semantic detector.
        noise_reduction: noise reduction at the provider; None where the microphone's own is enough.
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
    """OpenAI's Realtime API through Pipecat's service, over a WebSocket."""

    name = "openai_realtime"
    settings_type = OpenAiRealtimeSettings
    turns = TurnSource.SERVICE
    opening = Opening.ANSWERED_CONTEXT

    @property
    def turn_end_ms(self) -> int:
        """Silence after which the chosen detector ends a turn."""
        settings = self.settings
        by_silence = settings.turn_detection == "server_vad"
        return settings.silence_ms if by_silence else SEMANTIC_END_MS[settings.eagerness]

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``RealtimeRow.build``."""
        self.check()
        from pipecat.services.openai.realtime import events

        from parley.processors.duplex.openai_realtime import InterruptedRealtimeService

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
    """Settings of OpenAI's Live API.

    Attributes:
        model: None for Pipecat's default.
        voice: None leaves the provider's own.
        base_url: address of the WebSocket.
        api_key_env: the environment variable that holds the key.
        store: True has the provider store the conversation.
    """

    model: str | None = None
    voice: str | None = None
    base_url: str = "wss://api.openai.com/v1/live/sessions"
    api_key_env: str = "OPENAI_API_KEY"
    store: bool = False


class OpenAiLive(RealtimeRow[OpenAiLiveSettings]):
    """OpenAI's Live API through Pipecat's service. Delegations of the model to others are declined."""

    name = "openai_live"
    settings_type = OpenAiLiveSettings
    turns = TurnSource.SERVICE_ALONE
    opening = Opening.CONTEXT
    continuous = True
    typing = TypedInput.NONE

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``RealtimeRow.build``."""
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
    """Settings of Google's Gemini Live.

    Attributes:
        model: None for Pipecat's default.
        voice: the provider's voice name.
        language: language of the conversation, in the provider's notation.
        base_url: None for the provider's own.
        api_key_env: the environment variable that holds the key.
        silence_ms: silence after which the provider ends a turn; None leaves its own.
    """

    model: str | None = None
    voice: str = "Charon"
    language: str = "en-US"
    base_url: str | None = None
    api_key_env: str = "GOOGLE_API_KEY"
    silence_ms: int | None = Field(default=None, ge=100, le=5_000)


class GeminiLive(RealtimeRow[GeminiLiveSettings]):
    """Gemini Live through Google's SDK, which reconnects by itself."""

    name = "gemini_live"
    settings_type = GeminiLiveSettings
    package = "google.genai"
    extra = "google"
    turns = TurnSource.VOICE
    opening = Opening.CONTEXT

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``RealtimeRow.build``."""
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
    """Settings of Amazon's Nova Sonic.

    Attributes:
        model: the provider's model name.
        voice: the provider's voice name.
        region: where the model is hosted.
        access_key_id_env: the environment variable that holds the id of the access key.
        secret_access_key_env: the environment variable that holds the access key.
        session_token_env: the environment variable that holds a token of temporary credentials; None for
            lasting ones.
        max_tokens: longest answer.
        endpointing: how soon a turn is ended; None leaves the provider's own.
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
    """Nova Sonic through Amazon's SDK for Bedrock: refused on Python 3.11, which the SDK does not support."""

    name = "nova_sonic"
    settings_type = NovaSonicSettings
    package = "aws_sdk_bedrock_runtime"
    extra = "nova-sonic"
    # Oldest Python of Amazon's SDK.
    least_python: ClassVar[tuple[int, int]] = (3, 12)
    turns = TurnSource.VOICE
    opening = Opening.CONTEXT

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """Names of the environment variables of its secrets."""
        settings = self.settings
        envs = (settings.access_key_id_env, settings.secret_access_key_env, settings.session_token_env)
        return tuple(env for env in envs if env is not None)

    def check(self) -> None:
        """Check the Python version and the credentials; see ``ServiceRow.check``."""
        if sys.version_info < self.least_python:
            least, present = (".".join(map(str, each[:2])) for each in (self.least_python, sys.version_info))
            raise ConfigError(
                f"{self.name!r} cannot run here: Amazon's SDK needs Python {least} or newer, and this is "
                f"Python {present}; choose another engine, or a newer Python"
            )
        super().check()

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``RealtimeRow.build``."""
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
    """Settings of Ultravox's cloud.

    Attributes:
        model: None leaves the provider's own.
        voice: id of a voice of the provider; None leaves its own.
        temperature: temperature of the answers.
        max_duration_s: longest call.
        api_key_env: the environment variable that holds the key.
    """

    model: str | None = None
    voice: uuid.UUID | None = None
    temperature: float = Field(default=0.0, ge=0.0, le=1.0)
    max_duration_s: int = Field(default=3_600, ge=10, le=3_600)
    api_key_env: str = "ULTRAVOX_API_KEY"


class Ultravox(RealtimeRow[UltravoxSettings]):
    """Ultravox through Pipecat's service: one call of the provider for each call. Its address is fixed."""

    name = "ultravox"
    settings_type = UltravoxSettings
    package = "aiohttp"
    turns = TurnSource.VOICE
    opening = Opening.INSTRUCTIONS
    typing = TypedInput.TEXT

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``RealtimeRow.build``."""
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
