"""A call over a socket as a Pipecat transport: speech in real time in, paced audio and events out.

Input: the line of a ``SocketCall``; one task pushes due audio and actions into the pipeline. Pictures are
decoded in a thread. Output: audio leaves up to ``lead_ms`` before it is due, and counts as played when it is
due. An interruption therefore leaves the rest unheard: such clients drop the audio they hold when it is
reported. A client plays what comes at once, so a reply is held for a moment until ``OPENING_MS`` of it have
been made, and no audio leaves between the report of the caller's turn and the interruption by it. Replies
are reported by their frames in the order of playing, one after the other (``ReplyOrder``); the end of one is
reported when it has been played, or cut off. Where the frames that end one are lost, the playout record
reports its end (``end_reply``).

The caller's words take a longer way here than the end of the turn that they decide: RTVI's messages pass the
whole pipeline. So the end of a turn, and every later event, is reported after RTVI has reported that very end
(``TURN_END``), and with it the words before it. The wait is ``WORDS_S`` at most.

The input and the output side own one task each. The call ends when the client is gone.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    TTSTextFrame,
    UserImageRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_transport import BaseTransport, TransportParams

from parley.audio.gain import RampedGain
from parley.core.bounded_dict import BoundedDict
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.pictures import CAMERA, SHOWN
from parley.protocols.client_protocol import (
    ALREADY_SENT,
    TURN_END,
    Action,
    CallerStarted,
    CallerStopped,
    CallerVoiceChanged,
    Happening,
    Pictures,
    ProtocolError,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
)
from parley.runtime.loop_clock import LoopClock
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.pipecat_internals import declare_events, emit, queue_whole
from parley.transports.unit_input import UnitInput
from parley.transports.websocket.codecs import PcmEncoder
from parley.transports.websocket.pictures import PictureLimits, as_rgb
from parley.transports.websocket.reply_order import ReplyEnd, ReplyOrder
from parley.transports.websocket.rtvi_events import event_of_rtvi
from parley.transports.websocket.session import SocketCall

_US_PER_S = 1_000_000
PLAYED_MS = 20
# RTVI's message at the end of a caller's turn.
TURN_OVER = "user-stopped-speaking"
# Longest wait for the begin of a unit; the thread of an idle engine takes less.
UNIT_FIRST_MS = 5
# A reply that a caller cuts off is reported after the caller: the deciding processor may report the two in
# either order.
CUT_REPORT_S = 0.05
# No audio leaves between the begin of a caller's turn and the interruption by it, which comes late on a busy
# machine: it is held for so long at most, and while the client has more than this left to play.
MOST_HELD_US, LEFT_US = 1_000_000, 100_000
# Audio that a reply begins with, and the longest wait for it. On a busy machine the first chunks of 40 ms
# came at intervals of up to 80 ms: a client with nothing else to play falls silent within the first word. On
# an idle one a clause comes whole.
OPENING_MS, OPENING_S = 200, 0.1
# Longest wait for the last words of a turn that is over.
WORDS_S = 1.0
# Audio that a client may still hold after the time at which it would have played it.
BUFFERED_US = 500_000
# Contexts of the voice whose words may still come.
MOST_CONTEXTS = 64


@dataclass(frozen=True, slots=True)
class _HeldEnd:
    """End of a turn whose last words have not come yet.

    Attributes:
        end_id: id of its frame.
        timer: deadline of its wait.
        happened: events from it on, to be reported after the words.
    """

    end_id: int
    timer: asyncio.TimerHandle
    happened: list[Happening] = field(default_factory=list)


class SocketInput(DirectAudioInput):
    """Client's side: its speech, pictures and actions into the pipeline."""

    def __init__(self, transport: "SocketTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._socket = transport
        self._reader: asyncio.Task[None] | None = None
        self._clock = LoopClock()

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._reader = self.create_task(self._listen(), name="line")
        await emit(self._socket, "on_client_connected", self._socket.session)

    async def cleanup(self) -> None:
        await super().cleanup()
        reader, self._reader = self._reader, None
        if reader is not None:
            await self.cancel_task(reader)

    async def _listen(self) -> None:
        session, rate_hz = self._socket.session, self._socket.input_rate_hz
        while not session.gone.is_set():
            taken = session.take()
            if isinstance(taken, bytes):
                await self.hear(InputAudioRawFrame(audio=taken, sample_rate=rate_hz, num_channels=1))
            elif isinstance(taken, Pictures):
                await self.show(taken)
            elif taken is not None:
                await self._act(taken)
            else:
                await self._until_due()
        await emit(self._socket, "on_client_disconnected", session)

    async def hear(self, frame: InputAudioRawFrame) -> None:
        """Pass audio of the caller on."""
        self._socket.heard_samples += len(frame.audio) // PCM_BYTES_PER_SAMPLE
        receiver = self._socket.receiver()
        if receiver is not None:
            receiver.hear(frame)
            # A unit that is complete with it begins before voice activity processes a second of sound.
            await receiver.unit_begun(UNIT_FIRST_MS)
        await self.push_audio_frame(frame)

    async def _act(self, action: Action) -> None:
        try:
            await self._socket.session.act(action)
        except ProtocolError as refusal:
            self._socket.session.refuse(refusal)

    async def _until_due(self) -> None:
        session = self._socket.session
        due_us = session.line.next_due_us()
        left_s = None if due_us is None else max(0.0, (due_us - self._clock.now_us()) / _US_PER_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await session.spoke.wait()
                session.spoke.clear()

    async def show(self, pictures: Pictures) -> None:
        """Decode pictures in a thread and pass them on; one that cannot be read is refused."""
        if not self.capabilities.video_in:
            return
        for data in pictures.files:
            try:
                size, image = await asyncio.to_thread(as_rgb, data, self._socket.pictures)
            except Exception as error:  # a decoder may raise any error
                refusal = ProtocolError(
                    f"a picture cannot be read: {error}", code="invalid_payload", param="frame"
                )
                self._socket.session.refuse(refusal)
                continue
            picture = UserImageRawFrame(user_id="caller", image=image, size=size, format="RGB")
            picture.transport_source = SHOWN if pictures.are_shown else CAMERA
            receiver = self._socket.receiver()
            if receiver is not None:
                receiver.see(picture)
            await self.push_frame(picture)


class SocketOutput(InterruptibleOutput):
    """Bot's side: audio and events to the client."""

    def __init__(self, transport: "SocketTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._socket = transport
        self._clock = LoopClock()
        self._encoder = PcmEncoder()
        # Time until which audio sent ahead of the pipeline plays; whether the present reply was sent so.
        self._sent_until_us = 0
        self._is_sent = False
        self.gain = RampedGain()
        # Time at which the next audio is played, and the queue of unplayed items: PCM, or the end of a reply.
        self._next_us = 0
        self._ahead: deque[tuple[int, bytes | ReplyEnd]] = deque()
        self._sent = asyncio.Event()
        self._player: asyncio.Task[None] | None = None
        # The reply that is being sent, and the number of its begin; what the client learns of the replies, in
        # their order; the contexts of the replies; replies whose model still writes.
        self._reply_id: str | None = None
        self._number = 0
        self._order = ReplyOrder(self.happen, self._may_be_cut)
        self._contexts: dict[str, str] = {}
        # The replies of contexts, also of those that are over: words come as they are spoken.
        self._replies: BoundedDict[str, str] = BoundedDict(MOST_CONTEXTS)
        self._written: set[str] = set()
        # Last begin and end of the caller's voice, in the audio received.
        self._voice_ms: tuple[int | None, int | None] = (None, None)
        # Audio of the newest context that has come; whether that is all; set when either has changed.
        self._came_us, self._came_whole, self._came = 0, False, asyncio.Event()
        # True from the beginning of a reply to its first audio.
        self._opens = False
        # Time until which a turn of the caller, which has begun, may be followed by the interruption.
        self._may_cut_until_us = 0
        # Set by the next interruption, and then replaced: what waited to be sent is dropped.
        self._interruption = asyncio.Event()
        # A reply that was cut off, and the timer that reports it when no caller does.
        self._cut_off: ReplyOver | None = None
        self._cut_timer: asyncio.TimerHandle | None = None
        # Ends of turns whose last words have not come yet.
        self._held: deque[_HeldEnd] = deque()
        # The newest end that RTVI has reported. Pipecat's ids of frames grow: a late message, of an end that
        # is not awaited any more, is below those that are held.
        self._worded_id = -1

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._player = self.create_task(self._play(), name="played")

    async def cleanup(self) -> None:
        await super().cleanup()
        self._report_cut()
        while self._held:
            self._report_held()
        player, self._player = self._player, None
        if player is not None:
            await self.cancel_task(player)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, InterruptionFrame):
            self._may_cut_until_us = 0
            reached, self._interruption = self._interruption, asyncio.Event()
            reached.set()
            # The wait for the beginning of a reply is over too.
            self._came_whole = True
            self._came.set()
            if self._last_was_interruptible:
                self._cut()
        elif direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, VADUserStartedSpeakingFrame):
                self._voice_ms = self._ago_ms(frame.start_secs), None
                self.happen(CallerVoiceChanged(True, round(frame.start_secs * 1000)))
            elif isinstance(frame, VADUserStoppedSpeakingFrame):
                self._voice_ms = self._voice_ms[0], self._ago_ms(frame.stop_secs)
                self.happen(CallerVoiceChanged(False, round(frame.stop_secs * 1000)))
            elif isinstance(frame, UserStartedSpeakingFrame):
                self._socket.caller_speaks = True
                self._hold_audio()
                self.happen(CallerStarted(self._voice_ms[0]))
            elif isinstance(frame, UserStoppedSpeakingFrame):
                self._socket.caller_speaks = False
                self._report_cut()
                if frame.id > self._worded_id:
                    self._hold(frame.id)
                self.happen(CallerStopped(self._voice_ms[1]))
            elif isinstance(frame, OutputAudioRawFrame):
                self._count(frame)
                if self._stays_whole(frame) and await queue_whole(self, frame):
                    return
            elif isinstance(frame, TTSStartedFrame):
                self._came_us, self._came_whole = 0, False
            elif isinstance(frame, TTSStoppedFrame):
                self._came_whole = True
                self._came.set()
        await super().process_frame(frame, direction)

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        # In the order in which they are played.
        if direction is FrameDirection.DOWNSTREAM:
            self._follow(frame)
        await super().push_frame(frame, direction)

    def _hold_audio(self) -> None:
        """Hold the audio of a reply that the caller's turn, which begins, may cut off."""
        now_us = self._clock.now_us()
        self._may_cut_until_us = min(self._next_us - LEFT_US, now_us + MOST_HELD_US)

    def _may_be_cut(self) -> bool:
        """Return whether the caller's turn, which has begun, may still cut off the reply."""
        return self._clock.now_us() < self._may_cut_until_us

    def _count(self, frame: OutputAudioRawFrame) -> None:
        self._came_us += _long_us(frame)
        self._came.set()

    async def _until_opening(self) -> None:
        """Wait until the beginning of the present reply has come, or for ``OPENING_S``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_S):
                while not self._came_whole and self._came_us < OPENING_MS * 1000:
                    self._came.clear()
                    await self._came.wait()

    async def _wait_until(self, at_us: int, is_cut: asyncio.Event) -> None:
        """Wait until a moment, or until the audio is cut off."""
        left_us = at_us - self._clock.now_us()
        if left_us > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_us / _US_PER_S):
                    await is_cut.wait()

    def _stays_whole(self, frame: OutputAudioRawFrame) -> bool:
        """Return whether audio is spoken in a unit: cut into packets, each would be a frame of its own."""
        is_unit = isinstance(frame, TTSAudioRawFrame) and self._socket.session.protocol.wants_units
        return ALREADY_SENT.is_on(frame) or (is_unit and frame.sample_rate == self.sample_rate)

    async def send_message(
        self, frame: OutputTransportMessageFrame | OutputTransportMessageUrgentFrame
    ) -> None:
        message = frame.message
        if isinstance(message, dict):
            if message.get("type") == TURN_OVER:
                end_id = TURN_END.of(frame)
                self._on_words_reported(-1 if end_id is None else end_id)
                return
            happening = event_of_rtvi(message)
            if isinstance(happening, ProtocolError):
                self._socket.session.refuse(happening)
            elif happening is not None:
                self.happen(happening)
        else:
            self.happen(message)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        session = self._socket.session
        if session.gone.is_set():
            return False
        interruption = self._interruption
        opens, self._opens = self._opens, False
        # Full duplex speaks at the pace of speech: a wait would be heard in every reply.
        if opens and self._next_us <= self._clock.now_us() and self._socket.receiver() is None:
            await self._until_opening()
        # Pipecat keeps the task that waits here through an interruption.
        is_cut = interruption if frame.interruptible else asyncio.Event()
        await self._wait_until(self._next_us - session.lead_ms * 1000, is_cut)
        await self._wait_until(self._may_cut_until_us, is_cut)
        if is_cut.is_set() or (self._is_interrupting and frame.interruptible):
            return False
        start_us = max(self._next_us, self._clock.now_us())
        self._next_us = start_us + _long_us(frame)
        self._begin_if_needed()
        pcm = frame.audio
        self._is_sent = ALREADY_SENT.is_on(frame)
        if not self._is_sent:
            pcm = self.gain.apply(pcm)
            self._report_audio(pcm, frame.sample_rate, self._reply_id)
        piece_bytes = frame.sample_rate * PLAYED_MS // 1000 * PCM_BYTES_PER_SAMPLE
        for place in range(0, len(pcm), piece_bytes):
            due_us = start_us + place // PCM_BYTES_PER_SAMPLE * _US_PER_S // frame.sample_rate
            self._ahead.append((due_us, pcm[place : place + piece_bytes]))
        self._sent.set()
        return True

    def _begin_if_needed(self) -> None:
        """Begin the reply of a context that began after an interruption, at its first audio."""
        if self._reply_id is None and self._contexts:
            self._begin(next(reversed(self._contexts.values())))

    def say(self, pcm: bytes) -> None:
        """Send audio ahead of the pipeline (``UnitSink``); it counts as played from its frame on."""
        long_us = len(pcm) // PCM_BYTES_PER_SAMPLE * _US_PER_S // self.sample_rate
        self._sent_until_us = max(self._sent_until_us, self._clock.now_us()) + long_us
        if not self._socket.session.gone.is_set():
            self._report_audio(self.gain.apply(pcm), self.sample_rate)

    def cut(self) -> None:
        """Report that the reply is cut off (``UnitSink``), when one is on or may still be playing."""
        is_on = self._is_sent and self._reply_id is not None
        until_us, self._sent_until_us = self._sent_until_us, 0
        if is_on or (until_us and until_us + BUFFERED_US > self._clock.now_us()):
            self.happen(ReplyOver(self._reply_id or "", was_cut=True))

    def _report_audio(self, pcm: bytes, rate_hz: int, reply_id: str | None = None) -> None:
        data = self._encoder.encode(pcm, rate_hz, self._socket.session.protocol.output_format)
        if not data:
            return
        duration_ms = len(pcm) / PCM_BYTES_PER_SAMPLE * 1000 / rate_hz
        audio = ReplyAudio(data, duration_ms, is_paced=reply_id is not None)
        if reply_id is None:
            self.happen(audio)
        else:
            self._order.add(reply_id, audio)

    @property
    def unplayed_ms(self) -> float:
        """Length of the audio that the client has and has not played."""
        return max(0, self._next_us - self._clock.now_us()) / 1000

    def drop_unsent(self) -> None:
        """Drop audio that was sent and not played: the client drops it on the report of the interruption."""
        self._ahead.clear()
        self._next_us = 0
        self._encoder.reset()
        self.gain.reset()

    def end_reply(self, reply_id: str, *, was_cut: bool) -> None:
        """End a reply by the playout record; its frames end it too, where none of them was lost."""
        if reply_id != self._reply_id:
            return
        self._written.discard(reply_id)
        self._contexts = {each: named for each, named in self._contexts.items() if named != reply_id}
        if was_cut:
            self._cut()
        elif not any(isinstance(what, ReplyEnd) and what.number == self._number for _, what in self._ahead):
            self._end_when_done(reply_id)

    def _ago_ms(self, secs: float) -> int:
        return max(0, self._socket.heard_ms - round(secs * 1000))

    def happen(self, happening: Happening) -> None:
        """Report an event to the client, in order."""
        if not isinstance(happening, CallerStarted):
            self._report_cut()
        if isinstance(happening, RecognisedWords) or not self._held:
            self._socket.session.happen(happening)
        else:
            self._held[-1].happened.append(happening)
        self._report_cut()

    def _hold(self, end_id: int) -> None:
        """Hold the events after the end of a turn until its words have been reported."""
        timer = asyncio.get_running_loop().call_later(WORDS_S, self._report_held)
        self._held.append(_HeldEnd(end_id, timer))

    def _on_words_reported(self, end_id: int) -> None:
        """Release the ends whose words RTVI has reported: this one, and all before it."""
        self._worded_id = max(self._worded_id, end_id)
        while self._held and self._held[0].end_id <= self._worded_id:
            self._report_held()

    def _report_held(self) -> None:
        """Report the events after the first held end: its words have come, or are not awaited any more."""
        if self._held:
            held = self._held.popleft()
            held.timer.cancel()
            for happening in held.happened:
                self._socket.session.happen(happening)

    def _report_cut(self) -> None:
        over, self._cut_off = self._cut_off, None
        timer, self._cut_timer = self._cut_timer, None
        if timer is not None:
            timer.cancel()
        if over is None:
            return
        if self._held:
            self._held[-1].happened.append(over)
        else:
            self._socket.session.happen(over)

    def _follow(self, frame: Frame) -> None:
        if isinstance(frame, TTSStartedFrame):
            context_id = frame.context_id or ""
            reply_id = self._socket.reply_of(context_id) or context_id
            self._contexts[context_id] = self._replies[context_id] = reply_id
            self._begin(reply_id, is_filler=not frame.append_to_context and self._socket.is_answer_awaited())
        elif isinstance(frame, TTSTextFrame):
            self._report_words(frame)
        elif isinstance(frame, LLMFullResponseStartFrame):
            named = self._socket.reply_named(frame)
            if named:
                self._written.add(named)
        elif isinstance(frame, TTSStoppedFrame):
            self._end_when_done(self._contexts.pop(frame.context_id or "", None))
        elif isinstance(frame, LLMFullResponseEndFrame):
            named = self._socket.reply_named(frame)
            self._written.discard(named or "")
            self._end_when_done(named)

    def _begin(self, reply_id: str, *, is_filler: bool = False) -> None:
        if reply_id == self._reply_id:
            return
        if self._reply_id is not None:
            self._mark_end(ReplyEnd(self._reply_id, self._number, is_followed=True))
        self._reply_id = reply_id
        self._opens = True
        self._number = self._order.begin(ReplyBegan(reply_id, is_filler))

    def _report_words(self, frame: TTSTextFrame) -> None:
        words, reply_id = ReplyWords(frame.text), self._replies.get(frame.context_id or "")
        if reply_id is None:
            self.happen(words)
        else:
            self._order.add(reply_id, words)

    def _mark_end(self, end: ReplyEnd) -> None:
        """Have the end of a reply follow its audio, so that its last words are reported before."""
        self._ahead.append((max(self._next_us, self._clock.now_us()), end))
        self._sent.set()

    def _end_when_done(self, reply_id: str | None) -> None:
        if reply_id is None or reply_id != self._reply_id:
            return
        if reply_id in self._written or reply_id in self._contexts.values():
            return
        tail = self._encoder.flush(self._socket.session.protocol.output_format)
        if tail:
            # Its length was reported with the audio that went in.
            self._order.add(reply_id, ReplyAudio(tail, 0.0, is_paced=True))
        self._mark_end(ReplyEnd(reply_id, self._number))

    def _cut(self) -> None:
        reply_id, self._reply_id = self._order.cut(), None
        self._contexts.clear()
        self._written.clear()
        if reply_id is None or self._is_sent:
            # The code that sent it ahead of the pipeline has reported this too.
            return
        self._report_cut()
        self._cut_off = ReplyOver(reply_id, was_cut=True)
        if self._socket.caller_speaks:
            self._report_cut()
        else:
            self._cut_timer = asyncio.get_running_loop().call_later(CUT_REPORT_S, self._report_cut)

    async def _play(self) -> None:
        """Report sent audio as played when it is due."""
        while True:
            if not self._ahead:
                self._sent.clear()
                await self._sent.wait()
                continue
            due_us, what = self._ahead[0]
            left_us = due_us - self._clock.now_us()
            if left_us > 0:
                await asyncio.sleep(left_us / _US_PER_S)
            # An interruption may have come meanwhile.
            if not self._ahead or self._ahead[0][1] is not what:
                continue
            self._ahead.popleft()
            if isinstance(what, bytes):
                self._socket.on_packet(what)
            else:
                self._on_end(what)
            self._order.go_on()

    def _on_end(self, end: ReplyEnd) -> None:
        """Report the end of a reply, unless its model still writes."""
        if not end.is_followed and end.reply_id in self._written:
            return
        if end.number == self._number:
            self._reply_id = None
        self._order.end(end.number)


class SocketTransport(BaseTransport):
    """Both sides of a call over a socket.

    Event handlers available: ``on_client_connected(transport, session)``, ``on_client_disconnected``.

    Args:
        session: session of the client, open.
        params: parameters of Pipecat.
        input_rate_hz: rate of the pipeline.
        pictures: limits of the client's pictures.
        on_packet: called with the PCM of the bot's audio when it is played; must not block.
        receiver: returns the receiver of audio ahead of the pipeline; None when there is none.
        reply_of: returns the reply of a voice's context.
        reply_named: returns the reply that a frame of the model begins or ends.
        is_answer_awaited: returns true while the caller waits for an answer of which no words have come:
            speech that is not for the context is a filler then.

    Attributes:
        rate_hz: rate of the bot's audio; see ``UnitSink``.
        heard_samples: samples of the caller's audio that went into the pipeline.
        caller_speaks: a turn of the caller is open.
    """

    def __init__(
        self,
        session: SocketCall,
        params: TransportParams,
        *,
        input_rate_hz: int,
        pictures: PictureLimits | None = None,
        on_packet: Callable[[bytes], None],
        receiver: Callable[[], UnitInput | None],
        reply_of: Callable[[str], str | None],
        reply_named: Callable[[Frame], str | None],
        is_answer_awaited: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__()
        self.session = session
        self.rate_hz = params.audio_out_sample_rate or 0
        self.pictures = pictures or PictureLimits()
        self.input_rate_hz = input_rate_hz
        self.on_packet = on_packet
        self.receiver = receiver
        self.reply_of = reply_of
        self.reply_named = reply_named
        self.is_answer_awaited = is_answer_awaited
        self.heard_samples = 0
        self.caller_speaks = False
        self._socket_input, self._socket_output = self.made_sides(params)
        declare_events(self, "on_client_connected", "on_client_disconnected")

    def made_sides(self, params: TransportParams) -> tuple[SocketInput, SocketOutput]:
        """Make both sides; for transports whose sound goes another way."""
        return SocketInput(self, params), SocketOutput(self, params)

    async def open(self) -> None:
        """Begin to take the client's sound, where it comes another way than by its messages."""

    @property
    def heard_ms(self) -> int:
        """Length of the caller's audio that went into the pipeline."""
        return self.heard_samples * 1000 // self.input_rate_hz

    async def show(self, pictures: Pictures) -> None:
        """Pass on pictures that the caller shows with their next turn."""
        await self._socket_input.show(pictures)

    def report(self, happening: Happening) -> None:
        """Report an event from outside the pipeline, after the events that happened in it before."""
        self._socket_output.happen(happening)

    def end_reply(self, reply_id: str, *, was_cut: bool) -> None:
        """End a reply by the playout record."""
        self._socket_output.end_reply(reply_id, was_cut=was_cut)

    def say(self, pcm: bytes) -> None:
        """Send audio ahead of the pipeline (``UnitSink``)."""
        self._socket_output.say(pcm)

    def cut(self) -> None:
        """Report that the reply is cut off (``UnitSink``)."""
        self._socket_output.cut()

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next audio (``SupportsGain``).

        A reduction has no effect while the client has so much audio already that it would be heard when the
        reason for it is over.
        """
        if gain_db >= 0 or self._socket_output.unplayed_ms <= self.session.settings.lead_ms:
            self._socket_output.gain.set_db(gain_db)

    def input(self) -> SocketInput:
        return self._socket_input

    def output(self) -> SocketOutput:
        return self._socket_output


def _long_us(frame: OutputAudioRawFrame) -> int:
    return len(frame.audio) // PCM_BYTES_PER_SAMPLE * _US_PER_S // frame.sample_rate
