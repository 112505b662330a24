"""Media stream of one call in the media process, with a conversation process or without one.

Input: the connection of the call, commands of the conversation process, and the loss of that process. Output:
what the caller does, to the process that holds the conversation. Pace, marks, delay and comfort noise are
those of ``PhoneStream``, which runs here.

Lost: the audio that is not played is dropped. When the caller is quiet, the filler is said, or a tone where
no words are prepared, and again every ``filler_every_s``. The audio of the caller is kept (``CallerBuffer``),
except what comes while the bot is heard, which may be its echo, and what comes in a private pause. A process
that takes the call receives the kept audio first, ``FEED_RATE`` times as fast as it was spoken. A call that
no process takes within ``longest_gap_s`` ends with an apology.

Owns the stream and its tasks from ``run`` to its return. Full: commands wait in a queue of ``MOST_COMMANDS``;
a process that sends more has lost the call. Cancelled: the socket is closed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from loguru import logger

from parley.audio.comfort_noise import ComfortNoise
from parley.audio.holding_tone import holding_tone
from parley.protocols.facts import from_facts, to_facts
from parley.protocols.kept_streams import (
    APOLOGY,
    FILLER,
    AudioSent,
    DelayMeasured,
    HandedOver,
    KeyPressed,
    MarkQueued,
    PauseBegan,
    PauseEnded,
    PlayedOut,
    ReplyEnded,
    StreamEnd,
    StreamOpened,
    TonesQueued,
    TurnBegan,
    TurnSettled,
    read_state,
    state_facts,
)
from parley.protocols.twilio_media import PACKET_BYTES, PACKET_MS, SILENCE
from parley.runtime.conversation_settings import ConversationProcessTuning
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.transports.keeping.caller_buffer import BYTES_PER_S, CallerBuffer, is_loud
from parley.transports.phone_protocol import StreamProtocol
from parley.transports.twilio.stream import MOST_KEYS, PhonePeer, PhoneSettings, PhoneStream

FEED_RATE = 4
# Commands of a conversation that wait: ``RemoteStream`` sends little audio ahead.
MOST_COMMANDS = 1_000
# The bot is heard for this long after its last packet: the way to the caller's ear and back.
ECHO_S = 0.3

# Sends a message about this call to the conversation process.
Send = Callable[[EngineMessage], None]


@dataclass(frozen=True, slots=True)
class _Finish:
    """Question of the conversation whether all has been played."""

    number: int
    within_s: float


_Command = bytes | MarkQueued | ReplyEnded | _Finish | tuple[bytes]


class HandedPeer(PhonePeer, Protocol):
    """Socket that was handed over before its handshake; see ``HandedSocket``."""

    async def open(self) -> None: ...


class KeptStream:
    """Media stream of one call.

    Args:
        peer: socket of the call, whose handshake is still to be answered.
        handed: facts with which it was handed over.
        line: sound of the bot on the line.
        protocol: messages of its network.
        settings: settings of the gap.
        clauses: clauses that may be said without a process: mu-law, by name.
        send: reaches the process that has handed it over.
    """

    def __init__(
        self,
        peer: HandedPeer,
        handed: HandedOver,
        *,
        line: PhoneSettings | None,
        protocol: StreamProtocol,
        settings: ConversationProcessTuning,
        clauses: Mapping[str, bytes],
        send: Send,
    ) -> None:
        self._handed, self._settings, self._clauses = handed, settings, clauses
        self._peer = peer
        self._stream = PhoneStream(
            peer,
            line,
            comfort=ComfortNoise().packet,
            call_sid=handed.call_sid,
            protocol=protocol,
        )
        self._send: Send | None = send
        self._run = 0
        self._commands: asyncio.Queue[_Command] = asyncio.Queue(MOST_COMMANDS)
        self._has_tones = False
        # A voice that is a service has prepared no words, and neither has a process that died at once.
        self._tone = holding_tone() if settings.filler else b""
        # Packets of our own clauses that are still to be played.
        self._own_packets = 0
        self._heard_at_s = 0.0
        self._quiet_bytes = 0
        self._is_quiet = asyncio.Event()
        self._buffer = CallerBuffer()
        # Who began the private pause that is in force; it outlives the process.
        self._paused_by = ""
        self._keys: deque[str] = deque(maxlen=MOST_KEYS)
        # Kept audio that the new process has not received yet.
        self._owed: deque[bytes] = deque()
        self._over = asyncio.Event()
        self._end_reason = ""
        self._gap: asyncio.Task[None] | None = None
        self._feed: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Hold the stream until its caller, the conversation or a gap that is too long ends it."""
        pump = None
        try:
            with suppress(OSError):
                await self._peer.open()
            started = await self._stream.open()
            if started is None:
                self._report(MessageType.RELEASE, to_facts(StreamEnd(*self._stream.end)))
                return
            self._stream.listen(self)
            self._announce(None)
            pump = asyncio.create_task(self._pump(), name="kept_stream.commands")
            await self._over.wait()
        finally:
            tasks = [each for each in (pump, self._gap, self._feed) if each is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stream.close(self._end_reason)

    @property
    def is_lost(self) -> bool:
        """True while the call waits for another process."""
        return self._send is None and self._is_open

    @property
    def _is_open(self) -> bool:
        return self._stream.started is not None and not self._stream.gone.is_set() and not self._over.is_set()

    def end(self, reason: str) -> None:
        """Close the stream."""
        self._end_reason = self._end_reason or reason
        self._over.set()

    # The conversation process.

    def take(self, message: EngineMessage) -> None:
        """Carry out a command of the conversation.

        Raises:
            PeerError: it cannot be read.
        """
        match message.type:
            case MessageType.AUDIO:
                if message.number == self._run:
                    tones, self._has_tones = self._has_tones, False
                    self._queue((message.payload,) if tones else message.payload)
            case MessageType.DISCARD:
                self._run = message.number
                self._own_packets = 0
                self._drop_commands()
                self._stream.clear()
            case MessageType.STATE:
                self._take_state(message)
            case MessageType.FINISH:
                wanted = from_facts(PlayedOut, message.facts)
                self._queue(_Finish(message.number, wanted.within_s))
            case MessageType.RELEASE:
                self.end(from_facts(StreamEnd, message.facts).message)

    def lose(self) -> None:
        """Record that the conversation process is gone."""
        if self._send is None:
            return
        self._send = None
        if not self._is_open:
            self.end("the process of the call is gone")
            return
        if self._feed is not None:
            self._feed.cancel()
        self._owed.clear()
        self._drop_commands()
        self._has_tones = False
        # A filler of the gap before may still have been playing.
        self._own_packets = 0
        self._stream.clear()
        self._buffer.begin_gap()
        self._gap = asyncio.create_task(self._bridge(), name="kept_stream.gap")

    def resume(self, send: Send) -> None:
        """Go on with a new process, which receives the kept audio first."""
        if self._gap is not None:
            self._gap.cancel()
            self._gap = None
        self._send, self._run = send, 0
        self._announce(self._handed.call)
        while self._keys:
            self.key(self._keys.popleft())
        self._owed = deque(self._buffer.take())
        if self._owed:
            self._feed = asyncio.create_task(self._feed_kept(), name="kept_stream.feed")

    def _take_state(self, message: EngineMessage) -> None:
        match read_state(message.facts):
            case (MarkQueued() | ReplyEnded()) as state:
                self._queue(state)
            case TonesQueued():
                self._has_tones = True
            case TurnBegan(at_bytes):
                self._buffer.turn_began(at_bytes)
            case TurnSettled(at_bytes):
                self._buffer.turn_settled(at_bytes)
            case PauseBegan(by):
                self._paused_by = by
                self._buffer.begin_pause()
            case PauseEnded():
                self._paused_by = ""
                self._buffer.end_pause()

    def _queue(self, command: _Command) -> None:
        try:
            self._commands.put_nowait(command)
        except asyncio.QueueFull:
            logger.error("a conversation sends a call more audio than it can take; the call ends")
            self.end("the conversation sends too much")

    def _drop_commands(self) -> None:
        while not self._commands.empty():
            command = self._commands.get_nowait()
            if isinstance(command, _Finish):
                self._answer(command, is_played=False)

    async def _pump(self) -> None:
        """Carry out commands in their order; audio waits while enough of it is queued."""
        while True:
            command, run = await self._commands.get(), self._run
            match command:
                case bytes():
                    await self._stream.say(command)
                    if run == self._run:
                        self._report(MessageType.TAKEN, asdict(AudioSent(len(command))), number=run)
                case MarkQueued():
                    self._stream.mark()
                case ReplyEnded():
                    self._stream.end_reply()
                case _Finish():
                    self._answer(command, is_played=await self._stream.played_out(command.within_s))
                case _:
                    self._stream.press(command[0])

    def _answer(self, question: _Finish, *, is_played: bool) -> None:
        self._report(MessageType.DONE, {"is_played": is_played}, number=question.number)

    def _announce(self, call: Mapping[str, Any] | None) -> None:
        started = self._stream.started
        assert started is not None
        opened = StreamOpened(
            started.stream_sid,
            started.call_sid,
            started.account_sid,
            dict(started.parameters),
            None if call is None else dict(call),
            self._paused_by,
        )
        self._report(MessageType.OPEN, to_facts(opened))

    def _report(
        self,
        type_: MessageType,
        facts: Mapping[str, Any] | None = None,
        payload: bytes = b"",
        number: int = 0,
    ) -> None:
        if self._send is not None:
            self._send(EngineMessage(type_, number, facts or {}, payload))

    # The caller (``Listener``).

    def hear(self, pcm: bytes) -> None:
        """Pass the caller's audio on, or keep it."""
        now_s = asyncio.get_running_loop().time()
        if self._send is None:
            self._quiet_bytes = 0 if is_loud(pcm) else self._quiet_bytes + len(pcm)
            if self._quiet_bytes * 1000 >= self._settings.quiet_ms * BYTES_PER_S:
                self._is_quiet.set()
            if now_s - self._heard_at_s >= ECHO_S:
                self._buffer.hear(pcm)
            return
        self._buffer.hear(pcm)
        if self._owed:
            self._owed.append(pcm)
        else:
            self._report(MessageType.AUDIO, payload=pcm)

    def key(self, digit: str) -> None:
        """Pass a key on, or keep it for the next process."""
        if self._send is None:
            self._keys.append(digit)
        else:
            self._report(MessageType.STATE, state_facts(KeyPressed(digit)))

    def delay(self, delay_ms: int, unplayed_ms: int) -> None:
        """Pass a measured delay on."""
        self._report(MessageType.STATE, state_facts(DelayMeasured(delay_ms, unplayed_ms)))

    def played(self, mu_law: bytes) -> None:
        """Report a packet of the conversation that is played; our own clauses are none of its business."""
        self._heard_at_s = asyncio.get_running_loop().time()
        if self._own_packets:
            self._own_packets -= 1
        else:
            self._report(MessageType.PIECE, payload=mu_law, number=self._run)

    def over(self) -> None:
        """Report that the caller is gone."""
        self._report(MessageType.RELEASE, to_facts(StreamEnd(*self._stream.end)))
        self.end(self._stream.end[1])

    # The gap.

    async def _bridge(self) -> None:
        """Keep the caller on the line until a process takes the call, or for ``longest_gap_s``."""
        settings, loop = self._settings, asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout_at(loop.time() + settings.longest_gap_s):
                while True:
                    await self._wait_quiet()
                    self._say_own(self._clauses.get(FILLER) or self._tone)
                    await asyncio.sleep(settings.filler_every_s)
        logger.error("no process has taken a phone call in time; it ends")
        if self._say_own(self._clauses.get(APOLOGY, b"")):
            await self._stream.played_out(settings.settle_s)
        self.end("no process holds the conversation")

    async def _wait_quiet(self) -> None:
        """Wait until the caller is quiet, or for ``patience_s``.

        Silence is counted in audio and not in time: audio may be late on a busy machine.
        """
        self._quiet_bytes = 0
        self._is_quiet.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.patience_s):
                await self._is_quiet.wait()

    def _say_own(self, clause: bytes) -> bool:
        """Queue a clause of our own, mu-law; return False where there is none."""
        for place in range(0, len(clause), PACKET_BYTES):
            self._stream.queue(clause[place : place + PACKET_BYTES].ljust(PACKET_BYTES, SILENCE))
            self._own_packets += 1
        return bool(clause)

    async def _feed_kept(self) -> None:
        """Send the kept audio, faster than it was spoken, until the process has caught up."""
        while self._owed:
            for _ in range(min(FEED_RATE, len(self._owed))):
                self._report(MessageType.AUDIO, payload=self._owed.popleft())
            await asyncio.sleep(PACKET_MS / 1000)
