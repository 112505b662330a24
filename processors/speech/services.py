"""Text to speech that Pipecat ships, as rows.

Cartesia streams over a socket that the service owns and sends word times; Kokoro and Piper synthesise in
threads of this process; XTTS asks a server. Files of local voices are never fetched at run time.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

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
    from pipecat.services.tts_service import TTSService

TTS_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "tts service",
    {
        "cartesia": Row(f"{__name__}:Cartesia", "cloud, streaming, word times", env=("CARTESIA_API_KEY",)),
        "kokoro": Row(f"{__name__}:Kokoro", "local neural voice", extra="kokoro"),
        "piper": Row(f"{__name__}:Piper", "local neural voice, GPL-3.0 package", extra="piper"),
        "xtts": Row(f"{__name__}:Xtts", "own XTTS server; deprecated by Pipecat, gone in its version 2"),
    },
)


class CartesiaSettings(RowSettings):
    """Cartesia.

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

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        secret(self.name, self.settings.api_key_env)

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """See ``ServiceRow.build``."""
        self.check()
        from pipecat.services.cartesia.tts import CartesiaTTSService

        return CartesiaTTSService(
            api_key=secret(self.name, self.settings.api_key_env),
            url=self.settings.url,
            settings=CartesiaTTSService.Settings(
                model=self.settings.model, voice=self.settings.voice, language=self.settings.language
            ),
        )


class KokoroSettings(RowSettings):
    """Kokoro on this machine.

    Attributes:
        voice: a name in the voices file.
        language: BCP 47.
        speed: 1.0 is the voice's own.
        models_dir: where ``make models`` puts files.
    """

    voice: str = "af_heart"
    language: str = "en-US"
    speed: float = Field(default=1.0, ge=0.5, le=2.0)
    models_dir: Path = MODELS_DIR


class Kokoro(ServiceRow[KokoroSettings]):
    """Kokoro through ONNX."""

    name = "kokoro"
    settings_type = KokoroSettings
    package = "kokoro_onnx"
    extra = "kokoro"

    @property
    def files(self) -> tuple[Path, Path]:
        """The model and the voices."""
        folder = self.settings.models_dir / "kokoro"
        return folder / "kokoro-v1.0.onnx", folder / "voices-v1.0.bin"

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        require_files(self.name, *self.files)

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """See ``ServiceRow.build``."""
        self.check()
        from pipecat.services.kokoro.tts import KokoroTTSService
        from pipecat.transcriptions.language import Language

        model, voices = self.files
        return KokoroTTSService(
            model_path=str(model),
            voices_path=str(voices),
            settings=KokoroTTSService.Settings(
                voice=self.settings.voice,
                language=Language(self.settings.language),
                speed=self.settings.speed,
            ),
        )


class PiperSettings(RowSettings):
    """Piper on this machine.

    Attributes:
        voice: the voice's file name without its suffix.
        use_cuda: run on the accelerator.
        models_dir: where ``make models`` puts files.
    """

    voice: str = "en_US-lessac-medium"
    use_cuda: bool = False
    models_dir: Path = MODELS_DIR

    @field_validator("voice")
    @classmethod
    def _is_a_name(cls, voice: str) -> str:
        # The name becomes part of a path.
        if not re.fullmatch(r"[\w-]+", voice):
            raise ValueError("a voice is a file name without its suffix")
        return voice


class Piper(ServiceRow[PiperSettings]):
    """Piper in process."""

    name = "piper"
    settings_type = PiperSettings
    package = "piper"
    extra = "piper"

    @property
    def folder(self) -> Path:
        """Where voices are expected."""
        return self.settings.models_dir / "piper"

    def check(self) -> None:
        """See ``ServiceRow.check``."""
        super().check()
        voice = self.settings.voice
        require_files(self.name, self.folder / f"{voice}.onnx", self.folder / f"{voice}.onnx.json")

    def build(self, shared: Shared = NOTHING_SHARED) -> "TTSService":
        """See ``ServiceRow.build``."""
        self.check()
        from pipecat.services.piper.tts import PiperTTSService

        return PiperTTSService(
            download_dir=self.folder,
            use_cuda=self.settings.use_cuda,
            settings=PiperTTSService.Settings(voice=self.settings.voice),
        )


class XttsSettings(RowSettings):
    """A Coqui XTTS streaming server.

    Attributes:
        voice: a studio speaker of the server.
        base_url: the server.
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
        """See ``ServiceRow.build``."""
        self.check()
        if shared.http is None:
            raise ConfigError(f"{self.name!r} needs the HTTP session of the process")
        from pipecat.services.xtts.tts import XTTSService
        from pipecat.transcriptions.language import Language

        return XTTSService(
            base_url=self.settings.base_url.rstrip("/"),
            aiohttp_session=shared.http,
            settings=XTTSService.Settings(
                voice=self.settings.voice, language=Language(self.settings.language)
            ),
        )
