"""Stand-in for a browser's WebRTC connection with tracks of a test, as far as a client needs it."""

from collections.abc import Awaitable, Callable
from typing import Any

from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.transport import SmallWebRTCCallbacks

from parley.transports.webrtc.client import PacedWebRTCClient

RATE_HZ = 16_000


class BrowserConnection:
    """Replacement of Pipecat's ``SmallWebRTCConnection``."""

    pc_id = "caller"

    def __init__(self, *, microphone: object = None, camera: object = None) -> None:
        self._microphone = microphone
        self._camera = camera
        self._handlers: dict[str, Callable[..., Awaitable[None]]] = {}

    def add_event_handler(self, name: str, handler: Callable[..., Awaitable[None]]) -> None:
        self._handlers[name] = handler

    async def happens(self, name: str, *arguments: object) -> None:
        await self._handlers[name](self, *arguments)

    def audio_input_track(self) -> object:
        return self._microphone

    def video_input_track(self) -> object:
        return self._camera

    def screen_video_input_track(self) -> object:
        return None


async def connected_client(
    *, microphone: object = None, camera: object = None, on_first_word: Callable[[], None] | None = None
) -> PacedWebRTCClient:
    """Return the client of a pipeline at ``RATE_HZ`` whose peer is connected."""
    connection = BrowserConnection(microphone=microphone, camera=camera)

    async def nothing(*_arguments: Any) -> None:
        """Return nothing: tests of a client do not use its transport."""

    client = PacedWebRTCClient(
        connection,  # type: ignore[arg-type]
        SmallWebRTCCallbacks(
            on_app_message=nothing,
            on_client_connected=nothing,
            on_client_disconnected=nothing,
            on_track_status=nothing,
        ),
        on_packet=None,
        on_first_word=on_first_word,
    )
    params = TransportParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ)
    await client.setup(params, None)  # type: ignore[arg-type]  # only asked for rates that params lack
    await connection.happens("connected")
    return client
