"""Text-to-speech services that Pipecat ships, as rows.

Cartesia streams over a socket that the service owns and sends word times; XTTS sends requests to a server.
Voices that run in this process are engines of ``models.tts``.
"""

from typing import TYPE_CHECKING, Any

from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row
from parley.processors.service_rows import NOTHING_SHARED, RowSettings, ServiceRow, Shared, secret

if TYPE_CHECKING:
    from pipecat.services.tts_service import TTSService

TTS_SERVICES: Registry[ServiceRow[Any]] = Registry(
    "tts service",
    {
        "cartesia": Row(f"{__name__}:Cartesia", "cloud, streaming, word times", env=("CARTESIA_API_KEY",)),
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
