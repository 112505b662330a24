"""Language models as Pipecat services, as rows.

Decides which service class answers and how it is set up for speech: prompt caching on, short answers, no
retries inside the SDK. A provider's SDK obeys the ``retry-after`` of a 429, however long; the caller would
wait in silence. So retrying is off here and ``llm_failover`` answers instead.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import Field, ValidationError

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row
from parley.models.llm.hosted.engine import PoolLlmSettings, WorkerLlmSettings
from parley.models.llm.llamacpp.settings import LlamaCppSettings
from parley.processors.service_rows import NOTHING_SHARED, RowSettings, ServiceRow, Shared, secret

if TYPE_CHECKING:
    from pipecat.services.llm_service import LLMService


class LlmRow(Protocol):
    """A row of ``LLM_SERVICES``: a ``ServiceRow`` whose service gets a system instruction.

    A row whose model accepts pictures also has ``sees`` (``SeesPictures``).
    """

    def check(self) -> None:
        """Check whether ``build`` can work; see ``ServiceRow.check``."""
        ...

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``ServiceRow.build``. ``system_instruction``: how the agent answers."""
        ...


@runtime_checkable
class SeesPictures(Protocol):
    """A row that states whether its model accepts pictures."""

    @property
    def sees(self) -> bool:
        """True when a message to the model may hold pictures, as parts of OpenAI's form."""
        ...


def sees_pictures(row: LlmRow) -> bool:
    """Return whether the model of a row accepts pictures. A row that does not state it gets none."""
    return isinstance(row, SeesPictures) and row.sees


@runtime_checkable
class TakesToolChoice(Protocol):
    """A row that states whether a request can make its model call a tool."""

    @property
    def forces_tools(self) -> bool:
        """True when the service follows OpenAI's ``tool_choice`` of "required", or of one function."""
        ...


def forces_tools(row: LlmRow) -> bool:
    """Return whether a request can make the model of a row call a tool. False for one that does not say."""
    return isinstance(row, TakesToolChoice) and row.forces_tools


LLM_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "llm service",
    {
        "documents": Row(f"{__name__}:Documents", "answers from the deployment's own documents, no key"),
        "transformers": Row(
            f"{__name__}:Transformers",
            "any causal model on this machine; keeps its cache between turns",
            extra="local-llm",
        ),
        "llamacpp": Row(
            f"{__name__}:LlamaCpp",
            "a GGUF file on this machine with llama.cpp, in its own process",
            extra="llamacpp",
        ),
        "worker": Row(
            f"{__name__}:WorkerLlmRow", "the causal model of a worker (runner.py), which keeps the same"
        ),
        "pool": Row(f"{__name__}:PoolLlmRow", "the same in any worker of this deployment (workers.workers)"),
        "anthropic": Row(
            f"{__name__}:Anthropic",
            "Claude, prompt caching on",
            extra="anthropic",
            env=("ANTHROPIC_API_KEY",),
        ),
        "openai_compatible": Row(f"{__name__}:OpenAiCompatible", "any server with OpenAI's chat completions"),
        "vllm": Row(f"{__name__}:Vllm", "your own vLLM server on port 8000, no key"),
        "ollama": Row(f"{__name__}:Ollama", "your own Ollama server on port 11434, no key"),
        "groq": Row(f"{__name__}:Groq", "Groq's cloud", env=("GROQ_API_KEY",)),
    },
)


class DocumentsSettings(RowSettings):
    """Settings of the shared document engine.

    Attributes:
        piece_timeout_ms: longest wait for the next piece of an answer.
    """

    piece_timeout_ms: int = Field(default=10_000, ge=100, le=120_000)


class Documents(ServiceRow[DocumentsSettings]):
    """The process's own language model (``Shared.language_model``) as a Pipecat service."""

    name = "documents"
    settings_type = DocumentsSettings

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        if shared.language_model is None:
            raise ConfigError(f"{self.name!r} needs the language model that this process has not loaded")
        from parley.processors.dialogue.engine_llm import EngineLlmService

        return EngineLlmService(
            shared.language_model,
            engine_name=self.name,
            piece_timeout_s=self.settings.piece_timeout_ms / 1000,
            system_instruction=system_instruction,
        )


class TransformersSettings(RowSettings):
    """Settings of a causal model of transformers in this process.

    Attributes:
        piece_timeout_ms: longest wait for the next piece of an answer, other calls' answers included.
        lm: see ``models.llm.kv.causal.CausalSettings``; ``model`` is needed.
    """

    piece_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)
    lm: dict[str, Any] = Field(default_factory=dict)


class Transformers(ServiceRow[TransformersSettings]):
    """A conversation with the weights of the process (``Shared.open_replies``) as a Pipecat service."""

    name = "transformers"
    settings_type = TransformersSettings
    package = "transformers"
    extra = "local-llm"

    def check(self) -> None:
        """Check the package and the settings of the weights; see ``ServiceRow.check``."""
        super().check()
        self.lm_settings()

    def lm_settings(self) -> Any:
        """Return the settings of the weights, checked.

        Raises:
            ConfigError: an unknown field, a wrong value, no model.
        """
        from parley.models.llm.kv.causal import CausalSettings

        try:
            settings = CausalSettings.model_validate(self.settings.lm)
        except ValidationError as error:
            faults = "; ".join(
                f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()
            )
            raise ConfigError(f"thinking.llm (transformers): lm.{faults}") from error
        settings.check()
        return settings

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        return _of_conversation(self.name, self.settings.piece_timeout_ms, shared, system_instruction)


def _of_conversation(
    name: str, piece_timeout_ms: int, shared: Shared, system_instruction: str | None
) -> "LLMService[Any]":
    """Build a service around the language model of one conversation, which ends with it."""
    if shared.open_replies is None:
        raise ConfigError(f"{name!r} needs its weights in this process, or a worker")
    from parley.processors.dialogue.engine_llm import EngineLlmService

    return EngineLlmService(
        shared.open_replies(),
        engine_name=name,
        piece_timeout_s=piece_timeout_ms / 1000,
        system_instruction=system_instruction,
        owns_engine=True,
    )


class WorkerLlmRowSettings(WorkerLlmSettings, RowSettings):
    """Settings of a causal model in a worker.

    Attributes:
        piece_timeout_ms: longest wait for the next piece of an answer, however alive the worker is.
    """

    piece_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)


class WorkerLlmRow(ServiceRow[WorkerLlmRowSettings]):
    """A conversation with the model of a worker (``Shared.open_replies``) as a Pipecat service."""

    name = "worker"
    settings_type = WorkerLlmRowSettings

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """Name of the environment variable of the worker's secret."""
        return (self.settings.secret_env,)

    def check(self) -> None:
        """Check the settings; see ``ServiceRow.check``."""
        self.settings.check()

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        return _of_conversation(self.name, self.settings.piece_timeout_ms, shared, system_instruction)


class PoolLlmRowSettings(PoolLlmSettings, RowSettings):
    """Settings of causal models in the workers of this deployment.

    Attributes:
        piece_timeout_ms: longest wait for the next piece of an answer, however alive the worker is.
    """

    piece_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)


class PoolLlmRow(ServiceRow[PoolLlmRowSettings]):
    """A conversation with the model of a worker of the pool (``Shared.open_replies``) as a service."""

    name = "pool"
    settings_type = PoolLlmRowSettings

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        return _of_conversation(self.name, self.settings.piece_timeout_ms, shared, system_instruction)


class AnthropicSettings(RowSettings):
    """Settings of Claude.

    Attributes:
        model: the provider's model name.
        max_tokens: longest answer; a spoken one is short.
        temperature: None leaves the provider's own.
        effort: how much the model thinks; None sends the lowest setting that Pipecat knows for the model.
        forces_tools: a request may make the model call a tool; False for a model that cannot stop thinking,
            with which the provider refuses such requests. With ``effort`` it is False as well.
        prompt_caching: mark the system prompt and the history for the provider's cache.
        system_prompt_cache_ttl: lifetime of the cached system prompt; "1h" for one that many calls share.
        base_url: None for the provider's own.
        api_key_env: the environment variable that holds the key.
        request_timeout_ms: the SDK's own limit; the guard's deadlines are much shorter.
        sdk_retries: retries inside the SDK before the error is seen.
    """

    model: str = "claude-haiku-4-5"
    max_tokens: int = Field(default=400, ge=1, le=8192)
    temperature: float | None = Field(default=None, ge=0.0, le=1.0)
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    forces_tools: bool = True
    prompt_caching: bool = True
    system_prompt_cache_ttl: Literal["5m", "1h"] | None = None
    base_url: str | None = None
    api_key_env: str = "ANTHROPIC_API_KEY"
    request_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)
    sdk_retries: int = Field(default=0, ge=0, le=5)


class Anthropic(ServiceRow[AnthropicSettings]):
    """Claude through the official SDK."""

    name = "anthropic"
    settings_type = AnthropicSettings
    package = "anthropic"
    extra = "anthropic"

    @property
    def sees(self) -> bool:
        """True: every Claude model that the API serves accepts pictures."""
        return True

    @property
    def forces_tools(self) -> bool:
        """True unless the model thinks, with which the provider refuses to force a call."""
        return self.settings.forces_tools and self.settings.effort is None

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        self.check()
        from anthropic import AsyncAnthropic

        from parley.processors.dialogue.anthropic_service import ClaudeService

        settings = self.settings
        key = secret(self.name, settings.api_key_env)
        fields: dict[str, Any] = {
            "model": settings.model,
            "system_instruction": system_instruction,
            "max_tokens": settings.max_tokens,
            "enable_prompt_caching": settings.prompt_caching,
            "system_prompt_cache_ttl": settings.system_prompt_cache_ttl,
            "effort": settings.effort,
        }
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        return ClaudeService(
            api_key=key,
            client=AsyncAnthropic(
                api_key=key,
                base_url=settings.base_url,
                timeout=settings.request_timeout_ms / 1000,
                max_retries=settings.sdk_retries,
            ),
            settings=ClaudeService.Settings(**fields),
        )


class OpenAiCompatibleSettings(RowSettings):
    """Settings of any server with OpenAI's chat completions.

    Attributes:
        base_url: up to and including ``/v1``.
        model: the name that the server serves it under.
        sees: the model accepts pictures, which its name does not tell; Parley then sends them as
            ``image_url`` parts.
        forces_tools: the server follows a ``tool_choice`` of "required" and of one function; False for one
            that ignores it, so that clients who send it are refused.
        api_key_env: the environment variable that holds the key, or None for a server without keys.
        max_tokens: longest answer; a spoken one is short.
        temperature: None leaves the server's own.
        request_timeout_ms: the SDK's own limit; the guard's deadlines are much shorter.
        sdk_retries: retries inside the SDK before the error is seen.
    """

    base_url: str
    model: str = Field(min_length=1)
    sees: bool = False
    forces_tools: bool = True
    api_key_env: str | None = None
    max_tokens: int = Field(default=400, ge=1, le=8192)
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    request_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)
    sdk_retries: int = Field(default=0, ge=0, le=5)


class OpenAiCompatible(ServiceRow[OpenAiCompatibleSettings]):
    """Any compatible server through OpenAI's official SDK, which Pipecat itself requires."""

    name = "openai_compatible"
    settings_type: ClassVar[type[RowSettings]] = OpenAiCompatibleSettings

    @property
    def sees(self) -> bool:
        """True when the settings state that the model accepts pictures."""
        return self.settings.sees

    @property
    def forces_tools(self) -> bool:
        """True when the settings state that the server follows such a choice."""
        return self.settings.forces_tools

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        self.check()
        from parley.processors.dialogue.openai_service import OpenAiCompatibleService

        settings = self.settings
        fields: dict[str, Any] = {
            "model": settings.model,
            "max_tokens": settings.max_tokens,
            "system_instruction": system_instruction,
        }
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        env = settings.api_key_env
        return OpenAiCompatibleService(
            # The SDK refuses to start without a key and would otherwise send OPENAI_API_KEY to a foreign
            # server.
            api_key=secret(self.name, env) if env is not None else "none",
            base_url=settings.base_url,
            timeout_s=settings.request_timeout_ms / 1000,
            sdk_retries=settings.sdk_retries,
            settings=OpenAiCompatibleService.Settings(**fields),
        )


class LlamaCppRowSettings(LlamaCppSettings, RowSettings):
    """Settings of a GGUF file and of its requests.

    Attributes:
        max_tokens: longest answer; a spoken one is short.
        temperature: None leaves llama.cpp's own, 0.8.
        request_timeout_ms: the SDK's own limit; the guard's deadlines are much shorter.
    """

    max_tokens: int = Field(default=400, ge=1, le=8192)
    temperature: float | None = Field(default=None, ge=0.0, le=2.0)
    request_timeout_ms: int = Field(default=30_000, ge=100, le=600_000)

    @property
    def served(self) -> LlamaCppSettings:
        """The settings of the server alone."""
        return LlamaCppSettings(**self.model_dump(include=set(LlamaCppSettings.model_fields)))


class LlamaCpp(ServiceRow[LlamaCppRowSettings]):
    """The process's own llama.cpp server (``Shared.llamacpp``) through the official SDK."""

    name = "llamacpp"
    settings_type = LlamaCppRowSettings
    package = "xllamacpp"
    extra = "llamacpp"

    @property
    def forces_tools(self) -> bool:
        """True: llama.cpp forces a call by a grammar, where the chat template of the model has tools."""
        return True

    def check(self) -> None:
        """Check the package and the settings; see ``ServiceRow.check``."""
        super().check()
        self.settings.check()

    def build(
        self, shared: Shared = NOTHING_SHARED, *, system_instruction: str | None = None
    ) -> "LLMService[Any]":
        """Build the service; see ``LlmRow.build``."""
        if shared.llamacpp is None:
            raise ConfigError(
                f"{self.name!r} needs the language model server, which this process has not started"
            )
        from parley.processors.dialogue.llamacpp_service import LlamaCppService

        settings = self.settings
        fields: dict[str, Any] = {
            "model": settings.model.name,
            "max_tokens": settings.max_tokens,
            "system_instruction": system_instruction,
        }
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        return LlamaCppService(
            server=shared.llamacpp,
            timeout_s=settings.request_timeout_ms / 1000,
            settings=LlamaCppService.Settings(**fields),
        )


class VllmSettings(OpenAiCompatibleSettings):
    """Settings of vLLM on this machine."""

    base_url: str = "http://localhost:8000/v1"


class Vllm(OpenAiCompatible):
    """The compatible row with vLLM's own address."""

    name = "vllm"
    settings_type = VllmSettings


class OllamaSettings(OpenAiCompatibleSettings):
    """Settings of Ollama on this machine."""

    base_url: str = "http://localhost:11434/v1"
    # Ollama drops the field without an error (0.32.15: github.com/ollama/ollama/issues/17921).
    forces_tools: bool = False


class Ollama(OpenAiCompatible):
    """The compatible row with Ollama's own address."""

    name = "ollama"
    settings_type = OllamaSettings


class GroqSettings(OpenAiCompatibleSettings):
    """Settings of Groq's cloud."""

    base_url: str = "https://api.groq.com/openai/v1"
    api_key_env: str | None = "GROQ_API_KEY"


class Groq(OpenAiCompatible):
    """The compatible row with Groq's address and key."""

    name = "groq"
    settings_type = GroqSettings
