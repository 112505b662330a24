"""Speech to text that Pipecat ships, as rows.

Decides nothing about turns: every service here hands transcripts to the user aggregator. Deepgram and Soniox
stream over a socket that the service owns and ends with the pipeline; Whisper and Moonshine transcribe one
utterance at a time in a thread and are slower than real time on a busy machine, which delays the turn and
drops nothing.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.errors import ConfigError
from core.registry import Registry, Row
from processors.service_rows import (
    MODELS_DIR,
    NOTHING_SHARED,
    RowSettings,
    ServiceRow,
    Shared,
    require_files,
    secret,
)

if TYPE_CHECKING:
    from pipecat.services.stt_service import STTService

STT_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "stt service",
    {
        "deepgram": Row(
            f"{__name__}:Deepgram", "cloud, streaming", extra="deepgram", env=("DEEPGRAM_API_KEY",)
        ),
        "soniox": Row(f"{__name__}:Soniox", "cloud, streaming", env=("SONIOX_API_KEY",)),
        "whisper": Row(f"{__name__}:Whisper", "local, whole utterances", extra="whisper"),
        "moonshine": Row(f"{__name__}:Moonshine", "local, whole utterances, small", extra="moonshine"),
    },
)


class DeepgramSettings(RowSettings):
    """Deepgram.

    Attributes:
        model: the provider's model name.
        language: BCP 47.
        base_url: host of a private deployment; empty for the provider's own.
        api_key_env: the environment variable that holds the key.
        keyterms: words to expect, e.g. product names.
    """

    model: str = "nova-3-general"
    language: str = "en"
    base_url: str = ""
    api_key_env: str = "DEEPGRAM_API_KEY"
    keyterms: tuple[str, ...] = ()


class Deepgram(ServiceRow[DeepgramSettings]):
    """Streaming recognition in the cloud; sends partials."""

    name = "deepgram"
    settings_type = DeepgramSettings
    package = "deepgram"
    extra = "deepgram"

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        secret(self.name, self.settings.api_key_env)

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """See ``ServiceRow.build``."""
        self.check()
        from pipecat.services.deepgram.stt import DeepgramSTTService

        fields: dict[str, Any] = {"model": self.settings.model, "language": self.settings.language}
        if self.settings.keyterms:
            fields["keyterm"] = list(self.settings.keyterms)
        return DeepgramSTTService(
            api_key=secret(self.name, self.settings.api_key_env),
            base_url=self.settings.base_url,
            settings=DeepgramSTTService.Settings(**fields),
        )


class SonioxSettings(RowSettings):
    """Soniox.

    Attributes:
        model: the provider's model name.
        language_hints: BCP 47 base codes of the languages to expect.
        url: the provider's socket.
        api_key_env: the environment variable that holds the key.
    """

    model: str = "stt-rt-v5"
    language_hints: tuple[str, ...] = ("en",)
    url: str = "wss://stt-rt.soniox.com/transcribe-websocket"
    api_key_env: str = "SONIOX_API_KEY"


class Soniox(ServiceRow[SonioxSettings]):
    """Streaming recognition in the cloud. Our endpoint ends the turn, not the provider's."""

    name = "soniox"
    settings_type = SonioxSettings

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        secret(self.name, self.settings.api_key_env)

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """See ``ServiceRow.build``."""
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
            settings=SonioxSTTService.Settings(model=self.settings.model, language_hints=hints or None),
        )


class WhisperSettings(RowSettings):
    """Whisper on this machine.

    Attributes:
        model: the folder under ``models_dir/whisper`` that holds the converted model.
        language: ISO 639-1.
        device: where it runs.
        compute_type: CTranslate2 number format.
        no_speech_prob: segments above this probability of silence are dropped.
        models_dir: where ``make models`` puts files.
    """

    model: str = "base.en"
    language: str = "en"
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    compute_type: str = "int8"
    no_speech_prob: float = Field(default=0.4, ge=0.0, le=1.0)
    models_dir: Path = MODELS_DIR


class Whisper(ServiceRow[WhisperSettings]):
    """faster-whisper, one utterance at a time, no partials."""

    name = "whisper"
    settings_type = WhisperSettings
    package = "faster_whisper"
    extra = "whisper"

    @property
    def folder(self) -> Path:
        """Where the model's files are expected."""
        return self.settings.models_dir / "whisper" / self.settings.model

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        # Without tokenizer.json faster-whisper fetches one by itself.
        names = ("model.bin", "config.json", "tokenizer.json")
        require_files(self.name, *(self.folder / name for name in names))

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """See ``ServiceRow.build``."""
        self.check()
        from pipecat.services.whisper.stt import WhisperSTTService
        from pipecat.transcriptions.language import Language

        return WhisperSTTService(
            device=self.settings.device,
            compute_type=self.settings.compute_type,
            settings=WhisperSTTService.Settings(
                model=str(self.folder),
                language=Language(self.settings.language),
                no_speech_prob=self.settings.no_speech_prob,
            ),
        )


class MoonshineSettings(RowSettings):
    """Moonshine on this machine.

    Attributes:
        model: architecture.
        language: ISO 639-1.
        models_dir: where ``make models`` puts files.
    """

    model: Literal[
        "tiny", "base", "tiny-streaming", "base-streaming", "small-streaming", "medium-streaming"
    ] = "small-streaming"
    language: str = "en"
    models_dir: Path = MODELS_DIR


class Moonshine(ServiceRow[MoonshineSettings]):
    """Moonshine on the CPU, one utterance at a time, no partials."""

    name = "moonshine"
    settings_type = MoonshineSettings
    package = "moonshine_voice"
    extra = "moonshine"

    def files(self) -> list[Path]:
        """The files that this model consists of, in the layout of Moonshine's own cache.

        Raises:
            ConfigError: there is no such model for the language.
        """
        from moonshine_voice import string_to_model_arch
        from moonshine_voice.download import find_model_info, get_components_for_model_info

        try:
            info = find_model_info(self.settings.language, string_to_model_arch(self.settings.model))
        except ValueError as error:
            raise ConfigError(
                f"{self.name!r} has no {self.settings.model!r} for {self.settings.language!r}"
            ) from error
        folder = self.cache_dir / str(info["download_url"]).removeprefix("https://")
        return [folder / name for name in get_components_for_model_info(info)]

    @property
    def cache_dir(self) -> Path:
        """The cache root that the files are fetched under."""
        return self.settings.models_dir / "moonshine"

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        require_files(self.name, *self.files())

    def build(self, shared: Shared = NOTHING_SHARED) -> "STTService":
        """See ``ServiceRow.build``."""
        self.check()
        from processors.perception.moonshine_service import LocalMoonshineService

        return LocalMoonshineService(
            folder=self.files()[0].parent, model=self.settings.model, language=self.settings.language
        )
