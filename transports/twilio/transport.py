"""Pipecat transport of a phone call: 8 kHz and packets of 20 ms on the line, marks that report playout.

Input: the caller's audio from the ``PhoneStream``, at the pipeline's rate (the line's 8 kHz raised by
``audio.resample``), and keys as ``InputDTMFFrame``. Output: the bot's audio, mu-law, in the packets of the
stream's clock; keys as their tones; a mark after each clause, each ``mark_ms`` of speech and each reply. An
interruption clears the line in the step in which it comes: audio that had left and was not played is not
heard, and nothing of the reply follows.

What was played is told packet by packet when it is, by the stream's clock; how much later that is at the
caller's ear, and how much an interruption takes back of it, by the marks (``ClientDelayReported``,
``UnplayedReported``). Slow: the stream holds ``lead_ms`` of speech, and who makes it waits; a pipeline that
is behind what the caller says hears silence instead of what is over ``MOST_BEHIND_BYTES``, so that samples go
on being time. On a busy server it hears pieces of up to three packets. Owns one task, the input's, which
carries what was heard into the pipeline; a caller who is gone ends the call.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from copy import copy

import numpy as np
from loguru import logger
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.audio.dtmf.utils import load_dtmf_audio
from pipecat.frames.frames import (
    AggregatedTextFrame,
    Frame,
    InputAudioRawFrame,
    InputDTMFFrame,
    LLMFullResponseEndFrame,
    OutputAudioRawFrame,
    OutputDTMFFrame,
    OutputDTMFUrgentFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSStoppedFrame,
    TTSTextFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_transport import BaseTransport, TransportParams

from parley.audio import g711
from parley.audio.gain import RampedGain
from parley.audio.resample import Resampler
from parley.audio.speech_level import SpeechLevel
from parley.core.call_events import ClientDelayReported, UnplayedReported
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.protocols.twilio_media import RATE_HZ
from parley.runtime.event_stream import CallEvents
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.phone_protocol import CallerStream
from parley.transports.piece_length import PieceLength
from parley.transports.pipecat_internals import declare_events, emit
from parley.transports.twilio.caller import pcm_ms
from parley.transports.twilio.stream import MOST_PRESSED_US

CLAUSE_ENDS = (".", "!", "?", ",", ";", ":")
# Most audio that a slow pipeline may be behind (3 s). A busy host stops a process for a second or more, and
# the first call of a server loads shared resources: an answer that comes late is better than one to half of
# the words. A pipeline that is always slower than speech would be later and later.
MOST_BEHIND_BYTES = 3 * RATE_HZ * PCM_BYTES_PER_SAMPLE
MOST_KEYS = 64
# Audio is taken in pieces of this length. Longer ones cost the loop less. But a rest shorter than a piece
# stays until more comes. Backchannels consist of whole pieces (80 ms at a time). The end of a clause waits
# for the next one where a voice is late.
CHUNK_MS = 40


class PhoneInput(DirectAudioInput):
    """Caller's side: audio and keys into the pipeline.

    Attributes:
        dropped_ms: length of the speech replaced with silence because the pipeline was slow.
        pieces: length of the pieces.
    """

    def __init__(self, transport: "PhoneTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._phone = transport
        self._heard: deque[bytes] = deque()
        self._keys: deque[str] = deque(maxlen=MOST_KEYS)
        # Bytes that wait, and bytes dropped before them.
        self._behind = self._lost = 0
        self._news = asyncio.Event()
        self._is_over = False
        self._resampler: Resampler | None = None
        self._reader: asyncio.Task[None] | None = None
        self.dropped_ms = 0
        self.pieces = PieceLength(RATE_HZ)

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        rate_hz = self._phone.input_rate_hz
        if rate_hz != RATE_HZ:
            self._resampler = Resampler(RATE_HZ, rate_hz)
            self.pieces = PieceLength(RATE_HZ, delay_samples=self._resampler.delay_samples)
        self._reader = self.create_task(self._listen(), name="phone.line")
        await emit(self._phone, "on_client_connected", self._phone.stream)

    async def cleanup(self) -> None:
        await super().cleanup()
        self._phone.stream.stop_listening(self)
        reader, self._reader = self._reader, None
        if reader is not None:
            await self.cancel_task(reader)

    def hear(self, pcm: bytes) -> None:
        """Queue audio (``Listener``). In a slow pipeline, silence of equal length replaces the oldest."""
        self._heard.append(pcm)
        self._behind += len(pcm)
        if self._behind > MOST_BEHIND_BYTES:
            self._drop_oldest()
        if self._is_piece():
            self._news.set()

    def _drop_oldest(self) -> None:
        # One piece may be long by itself: after a gap of the line it includes the filler.
        limit = MOST_BEHIND_BYTES + max(len(piece) for piece in self._heard)
        while self._behind > limit:
            oldest = self._heard.popleft()
            self._behind -= len(oldest)
            self._lost += len(oldest)
            if not self.dropped_ms:
                logger.warning("the pipeline of a phone call is slow; the caller's speech is being lost")
            self.dropped_ms += pcm_ms(oldest)

    def _is_piece(self) -> bool:
        return self.pieces.is_whole(self._behind // PCM_BYTES_PER_SAMPLE)

    def key(self, digit: str) -> None:
        """Queue a key that was pressed (``Listener``)."""
        self._keys.append(digit)
        self._news.set()

    def delay(self, delay_ms: int, unplayed_ms: int) -> None:
        """Report the delay of the line (``Listener``)."""
        self._phone.report_delay(delay_ms, unplayed_ms)

    def played(self, mu_law: bytes) -> None:
        """See ``Listener``."""
        self._phone.on_packet(g711.decode(mu_law, g711.Law.MU).astype("<i2").tobytes())

    def over(self) -> None:
        """End the input (``Listener``): the caller is gone."""
        self._is_over = True
        self._news.set()

    async def _listen(self) -> None:
        leaving = asyncio.create_task(self._leave(), name="phone.leaving")
        try:
            while not self._is_over:
                await self._news.wait()
                self._news.clear()
                while not self._is_over and (what := self._take()) is not None:
                    await self._pass(what)
        except Exception as error:  # the boundary of a call, which ends it
            logger.opt(exception=error).error(f"receiving a caller's audio failed: {type(error).__name__}")
        finally:
            leaving.cancel()
        await emit(self._phone, "on_client_disconnected", self._phone.stream)

    async def _leave(self) -> None:
        await self._phone.leaving.wait()
        self.over()

    def _take(self) -> bytes | str | None:
        """Return the next key or audio. Keys come first and are never dropped: their caller has stopped
        talking.
        """
        if self._keys:
            return self._keys.popleft()
        if self._lost:
            lost, self._lost = self._lost, 0
            self.pieces.left(lost // PCM_BYTES_PER_SAMPLE)
            return bytes(lost)
        if not self._heard or not self._is_piece():
            return None
        pieces = [self._heard.popleft()]
        joined = len(pieces[0])
        most = self.pieces.most_joined_samples * PCM_BYTES_PER_SAMPLE
        while self._heard and joined + len(self._heard[0]) <= most:
            pieces.append(self._heard.popleft())
            joined += len(pieces[-1])
        self._behind -= joined
        self.pieces.left(joined // PCM_BYTES_PER_SAMPLE)
        return b"".join(pieces)

    async def _pass(self, what: bytes | str) -> None:
        if isinstance(what, str):
            try:
                button = KeypadEntry(what)
            except ValueError:
                # A to D, which the phone of a caller does not have.
                logger.info(f"the key {what} belongs to no call")
                return
            if self._phone.on_key is not None:
                self._phone.on_key(what)
            await self.push_frame(InputDTMFFrame(button=button))
            return
        pcm = what
        if self._resampler is not None:
            pcm = float_to_pcm16(self._resampler.feed(pcm16_to_float(pcm)))
        if pcm:
            loop = asyncio.get_running_loop()
            left_s, rate_hz = loop.time(), self._phone.input_rate_hz
            await self.push_audio_frame(InputAudioRawFrame(audio=pcm, sample_rate=rate_hz, num_channels=1))
            self.pieces.took((loop.time() - left_s) * 1000, len(what) // PCM_BYTES_PER_SAMPLE)


class PhoneOutput(InterruptibleOutput):
    """Bot's side: audio and keys to the caller."""

    def __init__(self, transport: "PhoneTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._phone = transport
        self.gain = RampedGain()
        # Length of the speech since the last mark.
        self._unmarked_ms = 0.0
        self._resampler: Resampler | None = None
        self._from_hz = 0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        # In the order in which they are played.
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, TTSTextFrame):
                if frame.text.rstrip().endswith(CLAUSE_ENDS):
                    self._mark()
            elif isinstance(frame, AggregatedTextFrame):
                # The frame begins the next clause.
                self._mark()
            elif isinstance(frame, (TTSStoppedFrame, LLMFullResponseEndFrame)):
                self._phone.stream.end_reply()
                self._mark()
        await super().push_frame(frame, direction)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if direction is FrameDirection.DOWNSTREAM:
            # Pipecat's own resampler holds back 100 ms and gives them at once.
            if isinstance(frame, OutputAudioRawFrame) and frame.sample_rate != RATE_HZ:
                lowered = copy(frame)
                lowered.audio = self._lowered(frame.audio, frame.sample_rate)
                lowered.sample_rate, lowered.num_frames = RATE_HZ, len(lowered.audio) // PCM_BYTES_PER_SAMPLE
                frame = lowered
            elif isinstance(frame, TTSStoppedFrame) and (tail := self._tail()):
                rest = TTSAudioRawFrame(
                    audio=tail, sample_rate=RATE_HZ, num_channels=1, context_id=frame.context_id
                )
                await super().process_frame(rest, direction)
        await super().process_frame(frame, direction)

    def _tail(self) -> bytes:
        """Return the audio that the resampler still holds of a reply that is over."""
        if self._resampler is None:
            return b""
        tail = self._lowered(bytes(self._resampler.delay_samples * PCM_BYTES_PER_SAMPLE), self._from_hz)
        self._resampler = None
        return tail

    def _lowered(self, pcm: bytes, rate_hz: int) -> bytes:
        if self._resampler is None or rate_hz != self._from_hz:
            self._from_hz, self._resampler = rate_hz, Resampler(rate_hz, RATE_HZ)
            # Fill the filter before the first sample: each frame then yields its whole length at once, 2 ms
            # later.
            self._resampler.feed(np.zeros(self._resampler.delay_samples, np.float32))
        return float_to_pcm16(self._resampler.feed(pcm16_to_float(pcm)))

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        stream = self._phone.stream
        if stream.gone.is_set():
            return False
        pcm = self.gain.apply(frame.audio)
        if self._phone.level is not None:
            # Audio other than speech (a backchannel) takes the present level, and the level does not learn
            # from it.
            pcm = self._phone.level.apply(pcm, learns=isinstance(frame, TTSAudioRawFrame))
        taken = await stream.say(g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), g711.Law.MU))
        if not taken:
            return False
        self._unmarked_ms += len(pcm) / PCM_BYTES_PER_SAMPLE / RATE_HZ * 1000
        if self._unmarked_ms >= stream.settings.mark_ms:
            self._mark()
        return True

    def drop_unsent(self) -> None:
        self._phone.stream.clear()
        self.gain.reset()
        self._resampler = None
        self._unmarked_ms = 0.0

    def _mark(self) -> None:
        if self._unmarked_ms:
            self._phone.stream.mark()
            self._unmarked_ms = 0.0

    async def write_dtmf(self, frame: OutputDTMFFrame | OutputDTMFUrgentFrame) -> None:
        """Send keys as tones, because Twilio accepts no keys on a stream.

        They do not count as speech, and the call does not wait for them.
        """
        for button in frame.buttons or ():
            pcm = await load_dtmf_audio(button, sample_rate=RATE_HZ)
            mu_law = g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), g711.Law.MU)
            if not self._phone.stream.press(mu_law):
                logger.warning("dropping keys to press: too many are waiting")
                return


class PhoneTransport(BaseTransport):
    """Both sides of a phone call.

    Event handlers available: ``on_client_connected(transport, stream)``, ``on_client_disconnected``.

    Args:
        stream: open.
        params: Pipecat's; the output's rate is the line's.
        input_rate_hz: of the pipeline.
        on_packet: told the PCM of each packet of speech when it is played; must not block.
        events: of the call.
        on_key: told the keys that the caller presses; must not block.
        leaving: set when the call ends here and the line goes on elsewhere.
        level: sets how loud the bot speaks; None leaves its voice as it is.
    """

    def __init__(
        self,
        stream: CallerStream,
        params: TransportParams,
        *,
        input_rate_hz: int,
        on_packet: Callable[[bytes], None],
        events: CallEvents,
        on_key: Callable[[str], None] | None = None,
        leaving: asyncio.Event | None = None,
        level: SpeechLevel | None = None,
    ) -> None:
        super().__init__()
        self.on_key = on_key
        self.level = level
        self.stream = stream
        self.leaving = leaving or asyncio.Event()
        self.input_rate_hz = input_rate_hz
        self.on_packet = on_packet
        self._events = events
        self._phone_input = PhoneInput(self, params)
        self._phone_output = PhoneOutput(self, params)
        declare_events(self, "on_client_connected", "on_client_disconnected")
        # Nothing, while the marks have not said otherwise.
        events.publish(UnplayedReported(events.now_ms(), 0))
        # From here on, what waits for the pipeline is kept.
        stream.listen(self._phone_input)

    def report_delay(self, delay_ms: int, unplayed_ms: int) -> None:
        """Report the delays that the marks have measured, in milliseconds."""
        events = self._events
        events.publish(ClientDelayReported(events.now_ms(), delay_ms))
        events.publish(UnplayedReported(events.now_ms(), unplayed_ms))

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next audio (``SupportsGain``)."""
        self._phone_output.gain.set_db(gain_db)

    def release(self) -> None:
        """See ``ReleasesCall``."""
        self.on_key = None

    def input(self) -> PhoneInput:
        return self._phone_input

    def output(self) -> PhoneOutput:
        return self._phone_output


def phone_params(input_rate_hz: int) -> TransportParams:
    """Return the parameters of a phone line: 8 kHz, no silence after a reply.

    The line divides its chunks into packets.
    """
    return TransportParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_in_sample_rate=input_rate_hz,
        audio_out_sample_rate=RATE_HZ,
        audio_out_end_silence_secs=0,
        audio_out_10ms_chunks=CHUNK_MS // 10,
        # Speech waits for the tones of keys before it; the stream detects a line that accepts nothing.
        audio_out_write_timeout_secs=2 * MOST_PRESSED_US / 1_000_000,
    )
