"""A caller's echo control and voice activity in a process of their own, as the pipeline sees them.

In: pieces of the microphone and of what was played. Out: pieces of the caller's voice, with the voice
activity of the windows that they complete: those are taken (``measure``) by the analyzer that the same audio
comes to next. One question at a time, each with a deadline.

Dead or hung: ``EngineError``, once; ``failure`` says so from there on. Echo control then passes the caller as
recorded, voice activity goes on in this process. Closed by ``close``, as often as it is called.
"""

from collections import deque

from core.errors import EngineError
from models.echo.control import MAX_WAITING, EchoControlSettings
from models.front_end import (
    Piece,
    Played,
    answered_piece,
    answered_windows,
    asked_open,
    asked_piece,
    asked_windows,
)
from models.vad.meter import Window
from runtime.engine_process import EngineProcess, ProcessStream


class HostedFrontEnd:
    """One caller.

    Args:
        process: ready, with a ``models.front_end.FrontEnd``.

    Attributes:
        rate_hz: of the microphone.

    Raises:
        EngineError: the process is not ready.
    """

    def __init__(self, process: EngineProcess[object]) -> None:
        self.rate_hz = process.rate_hz
        self._stream: ProcessStream[object] = process.open_now(lambda _: None)
        self._has_echo = False
        self._played: deque[Played] = deque(maxlen=MAX_WAITING)
        # Taken before the next piece is asked for.
        self._windows: deque[Window] = deque()

    @property
    def failure(self) -> EngineError | None:
        """Why nothing more is answered."""
        return self._stream.failure

    async def open_echo(self, settings: EchoControlSettings) -> None:
        """This caller has echo control.

        Raises:
            EngineError: the engine does not start; the stream is over.
        """
        await self._stream.ask(asked_open(settings))
        self._has_echo = True

    def played(self, pcm: bytes, rate_hz: int, at_us: int) -> None:
        """A piece of 16-bit PCM leaves for the loudspeaker at ``at_us``. Any thread."""
        self._played.append((pcm, rate_hz, at_us))

    async def process(self, pcm: bytes, at_us: int, *, wants_cancelled: bool) -> Piece:
        """What is not echo of the frames that ``pcm`` completes.

        Raises:
            EngineError: the engine failed, or its process did.
        """
        played = []
        while self._played:
            played.append(self._played.popleft())
        asked = asked_piece(pcm, at_us, played, wants_cancelled=wants_cancelled)
        piece = answered_piece(await self._stream.ask(asked))
        self._windows = deque(piece.windows)
        return piece

    async def measure(self, pcm: bytes, windows: int) -> list[Window]:
        """Voice activity of so many whole windows of the caller's audio.

        pcm: 16-bit; where there is echo control, what it made.

        Raises:
            EngineError: the engine failed, or its process did.
        """
        if not self._has_echo:
            return answered_windows(await self._stream.ask(asked_windows(pcm)))
        if len(self._windows) < windows:
            # The audio is not that of the pieces; nothing here knows of it.
            self.close()
            raise EngineError("voice activity of other audio was asked for", engine="front_end")
        return [self._windows.popleft() for _ in range(windows)]

    def close(self) -> None:
        """The caller is gone."""
        if self._stream.failure is None:
            self._stream.close()
