"""Live calls of one process, for operators: a list of them, their audio while they last, and their end.

A call is here from its beginning to its end. A spoken one (``ListenedCall``) has audio. A conversation in
writing, a phone call as text, and the call of a human at the desk, who is heard in the caller's call, have
none (``ListedCall``). Listening takes the two sides where a recording takes them (``media_taps``), in memory
only, and is an event of the call, which the session keeps. In a private pause a listener hears silence.

The generator of a listener belongs to the response that reads it. One that reads slower than the call loses
audio (``audio.live_stereo``). It ends with the call.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from parley.audio.live_stereo import BLOCK_MS, MOST_MS, LiveStereo
from parley.audio.speech_file import wav_header
from parley.core.call_events import OperatorListened, PrivatePauseBegan, PrivatePauseEnded
from parley.core.errors import PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.pipelines.call import Call
from parley.pipelines.modes import TEXT
from parley.serving.gateway.admin.calls_api import LiveCallView

RATE_HZ = 16_000
CALLER, BOT = 0, 1


class ListedCall:
    """A call of this process while it lasts, without audio: the gateway's ``LiveCallEntry``.

    Args:
        call_id: of the call.
        session_id: of its session.
        transport: of the caller, as the session's records name it.
        mode: of the call (``modes``).

    Attributes:
        ending: set when an operator ends the call, whose holder then ends it.
    """

    has_audio = False

    def __init__(self, call_id: str, session_id: str, transport: str, mode: str) -> None:
        self.ending = asyncio.Event()
        self._call_id, self._session_id = call_id, session_id
        self._transport, self._mode = transport, mode
        self._began_at = datetime.now(UTC)

    @property
    def listeners(self) -> int:
        """Number of operators who listen."""
        return 0

    def view(self) -> LiveCallView:
        """Return what the list shows of the call."""
        return LiveCallView(
            call_id=self._call_id,
            session_id=self._session_id,
            transport=self._transport,
            mode=self._mode,
            began_at=self._began_at,
            listeners=self.listeners,
            has_audio=self.has_audio,
        )

    def end(self) -> None:
        """End it: its watcher does."""
        self.ending.set()

    def listen(self) -> AsyncGenerator[bytes, None]:
        """Return the audio of the call.

        Raises:
            PeerError: it has none.
        """
        raise PeerError("this call has no audio of its own")

    def close(self) -> None:
        """The call is over: it needs nothing more."""


class ListenedCall(ListedCall):
    """A spoken call of this process while it lasts.

    Args:
        call: the call.
        mode: its mode (``modes``).

    Attributes:
        ended: set when the call is over.
    """

    has_audio = True

    def __init__(self, call: Call, mode: str) -> None:
        super().__init__(call.call_id, call.conversation.session_id, call.transport, mode)
        self.ended = asyncio.Event()
        self._call = call
        self._listeners: list[_Listener] = []
        self._is_private = False
        call.events.subscribe(PrivatePauseBegan, self._on_pause)
        call.events.subscribe(PrivatePauseEnded, self._on_pause)

    @property
    def listeners(self) -> int:
        """Number of operators who listen."""
        return len(self._listeners)

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield a WAV file of 16 kHz stereo without an end: the caller on the left, the bot on the right."""
        if self.ended.is_set():
            return
        listener = _Listener()
        self._begin(listener)
        try:
            yield wav_header(RATE_HZ, channels=2)
            loop = asyncio.get_running_loop()
            due_s = loop.time()
            while not self.ended.is_set():
                # A reader that was away gets what waits, and no more.
                due_s = max(due_s + BLOCK_MS / 1_000, loop.time() - MOST_MS / 1_000)
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                yield listener.stereo.take()
        finally:
            self._end(listener)

    def close(self) -> None:
        """End all listening: the call is over."""
        self.ended.set()
        for listener in tuple(self._listeners):
            self._end(listener)

    def _begin(self, listener: "_Listener") -> None:
        listener.is_private = self._is_private
        self._listeners.append(listener)
        self._call.live.follow_media(listener)
        self._call.events.publish(OperatorListened(self._call.events.now_ms(), is_on=True))

    def _end(self, listener: "_Listener") -> None:
        if listener not in self._listeners:
            return
        self._listeners.remove(listener)
        self._call.live.leave_media(listener)
        self._call.events.publish(OperatorListened(self._call.events.now_ms(), is_on=False))

    def _on_pause(self, event: PrivatePauseBegan | PrivatePauseEnded) -> None:
        self._is_private = isinstance(event, PrivatePauseBegan)
        for listener in self._listeners:
            listener.is_private = self._is_private
            listener.stereo.clear()


class _Listener:
    """Receiver of the media of a call (``MediaFollower``)."""

    def __init__(self) -> None:
        self.stereo = LiveStereo(RATE_HZ)
        self.is_private = False

    def hear(self, pcm: bytes, rate_hz: int) -> None:
        self._take(CALLER, pcm, rate_hz)

    def play(self, pcm: bytes, rate_hz: int, at_us: int | None) -> None:
        self._take(BOT, pcm, rate_hz)

    def see(self, pixels: bytes, size: tuple[int, int]) -> None:
        """Pictures are not sent to listeners."""

    def _take(self, side: int, pcm: bytes, rate_hz: int) -> None:
        # An error here would be one of the transport that reports the audio.
        if not self.is_private and rate_hz and len(pcm) % PCM_BYTES_PER_SAMPLE == 0:
            self.stereo.feed(side, pcm, rate_hz)


class LiveCalls:
    """Live calls of one process: the gateway's ``LiveCallEntries``.

    Args:
        can_listen: operators may listen to them.

    Attributes:
        can_listen: as given.
    """

    def __init__(self, *, can_listen: bool) -> None:
        self.can_listen = can_listen
        self._calls: dict[str, ListedCall] = {}

    def listed(self) -> Sequence[LiveCallView]:
        """Return the calls, the newest first."""
        return [each.view() for each in reversed(self._calls.values())]

    def find(self, call_id: str) -> ListedCall | None:
        """Return a call; None when this process has none of this id."""
        return self._calls.get(call_id)

    @contextmanager
    def opened(self, call: Call, mode: str) -> Iterator[ListenedCall]:
        """List a spoken call while the block runs."""
        live = ListenedCall(call, mode)
        with self._listing(call.call_id, live):
            yield live

    @contextmanager
    def opened_silent(
        self, call_id: str, session_id: str, transport: str, mode: str = TEXT
    ) -> Iterator[ListedCall]:
        """List a call without audio of its own while the block runs; its holder watches ``ending``."""
        live = ListedCall(call_id, session_id, transport, mode)
        with self._listing(call_id, live):
            yield live

    @contextmanager
    def _listing(self, call_id: str, live: ListedCall) -> Iterator[None]:
        self._calls[call_id] = live
        try:
            yield
        finally:
            live.close()
            del self._calls[call_id]
