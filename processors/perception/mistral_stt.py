"""Recogniser of Mistral's realtime transcription (Voxtral) as a service of Pipecat.

The text follows the audio by a delay. When voice activity reports the end of a voice, ``flush`` asks for the
rest of it at once, and the text is final when the server says that it is done. The turn waits for it
meanwhile (``WordsOwedFrame``). The server does not answer every flush: when nothing was said, and at times
after a text. What has come by a deadline is final then.

The server sends no times: words are estimated from the spelling, between the beginning and the end of their
voices. Nothing is sent before the server has opened the session; the audio of that time is kept, and bounded.
One task, owned by the base class, receives; one at a time waits for an end.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.settings import STTSettings
from pipecat.services.stt_latency import MISTRAL_TTFS_P99
from pipecat.services.stt_service import WebsocketSTTService
from pipecat.utils.time import time_now_iso8601

from parley.core.errors import PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.processors.perception.hosted_words import estimated_words
from parley.processors.perception.owed_words import OwesWords
from parley.processors.pipecat_internals import SocketRecogniser, VoiceEdges
from parley.protocols.mistral_asr import (
    MOST_BYTES,
    SessionFailed,
    SessionOpened,
    TextDone,
    TextPiece,
    append_message,
    flush_message,
    read_transcription_message,
    settings_message,
)

# Audio of one message.
PIECE_MS = 60
# Audio that is kept until the session is open, and the longest that one message may have (4 s at 32 kHz).
MOST_HELD_MS, MOST_PIECE_MS = 5_000, 2_000
# Ends of voices that may wait for their texts.
MOST_WAITING = 64
# The server ends a session without a text after 30 s; the caller's audio may be muted for longer.
KEEPALIVE_S = 10.0
SILENCE_MS = 500
# A caller says 900 characters in a minute. More without a pause become final without one.
MOST_CHARS = 5_000


class MistralSttService(OwesWords, VoiceEdges, SocketRecogniser, WebsocketSTTService):
    """Recogniser of one call.

    Args:
        url: address of the server's realtime transcription, with the model.
        api_key: the server's key.
        model: name of the model, for measurements.
        delay_ms: time by which the text follows the audio; None: the server's own.
        final_s: longest wait for the rest of a text.
    """

    def __init__(self, url: str, api_key: str, *, model: str, delay_ms: int | None, final_s: float) -> None:
        super().__init__(
            ttfs_p99_latency=MISTRAL_TTFS_P99,
            keepalive_timeout=KEEPALIVE_S,
            settings=STTSettings(model=model, language=None),
        )
        self._url, self._key = url, api_key
        self._delay_ms, self._final_s = delay_ms, final_s
        self._is_voice = False
        self._ending: asyncio.Task[None] | None = None
        # Bytes of audio that came; the recogniser's time.
        self._position = 0
        self._begin_stream()

    def _begin_stream(self) -> None:
        self._audio = bytearray()
        self._is_open = False
        # Text that is not final, the beginning of its voice, and that of the last voice.
        self._text = ""
        # Texts of the session that are final, each with a space after it.
        self._passed = ""
        self._began_ms = self._voice_ms = self._ms(self._position)
        # Ends of the voices whose flushes were not answered.
        self._ends: deque[int] = deque(maxlen=MOST_WAITING)

    def can_generate_metrics(self) -> bool:
        """Return True: the time from end of voice to final, and the seconds of audio, are measured."""
        return True

    def address(self) -> tuple[str, dict[str, str]]:
        return self._url, {"Authorization": f"Bearer {self._key}"}

    async def connected(self) -> None:
        self._begin_stream()
        await self.report_owed(bool(self._ends))

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Send audio; text comes from the receiver."""
        self._audio += audio
        self._position += len(audio)
        if not self._is_open:
            del self._audio[: max(0, len(self._audio) - self._bytes(MOST_HELD_MS))]
        elif len(self._audio) >= self._bytes(PIECE_MS):
            await self._send_audio()
        yield None

    async def voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        # The frame comes twice when voice activity is detected both before and after this processor.
        if self._is_voice:
            return
        await super().voice_started(frame)
        self._is_voice = True
        self._voice_ms = max(0, self._ms(self._position) - round(frame.start_secs * 1000))
        if not self._text and not self._ends:
            self._began_ms = self._voice_ms

    async def voice_stopped(self, frame: VADUserStoppedSpeakingFrame) -> None:
        if not self._is_voice:
            return
        await super().voice_stopped(frame)
        self._is_voice = False
        self._ends.append(self._ms(self._position) - round(frame.stop_secs * 1000))
        self.request_finalize()
        if self._is_open:
            await self._flush()
        await self.report_owed(bool(self._ends))
        await self._restart_deadline()

    async def keep_alive(self) -> None:
        if self._is_open:
            await self.send_messages([append_message(bytes(self._bytes(SILENCE_MS)))])

    async def take_message(self, message: str | bytes) -> None:
        match read_transcription_message(message):
            case SessionOpened():
                await self._open()
            case TextPiece(text):
                await self._add_text(text)
            case TextDone(text):
                await self._end_text(text)
            case SessionFailed(reason):
                raise PeerError(f"the server refuses: {reason}")

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._cancel_deadline()

    async def _open(self) -> None:
        settings = settings_message(self.sample_rate, self._delay_ms)
        await self.send_messages([settings])
        self._is_open = True
        await self._send_audio()
        if self._ends:
            # Voices that were over before are one text.
            self._ends = deque([self._ends[-1]], maxlen=MOST_WAITING)
            await self.send_messages([flush_message()])

    async def _send_audio(self) -> None:
        pcm, step = bytes(self._audio), self._bytes(MOST_PIECE_MS)
        self._audio.clear()
        await self.send_messages(
            append_message(pcm[start : start + step]) for start in range(0, len(pcm), step)
        )

    async def _flush(self) -> None:
        await self._send_audio()
        if not await self.send_messages([flush_message()]):
            self._ends.clear()

    async def _add_text(self, text: str) -> None:
        self._text += text
        if len(self._text) >= MOST_CHARS:
            await self._push_final(self._ms(self._position))
        elif self._text.strip():
            await self.push_frame(InterimTranscriptionFrame(self._text.strip(), "", time_now_iso8601()))

    async def _end_text(self, text: str) -> None:
        """Make the text so far final. The server repeats it as a whole, or all texts of the session.

        What follows the earlier texts may have more than its pieces, but only where it begins with them: a
        voice may begin with the same words as the session.
        """
        said, whole = " ".join(self._text.split()), " ".join(text.split())
        rest = whole[len(self._passed) :] if whole.startswith(self._passed) else ""
        if said and rest.startswith(said):
            self._text = rest
        self.confirm_finalize()
        await self._push_final(self._ends.popleft() if self._ends else self._ms(self._position))
        await self.report_owed(bool(self._ends))

    async def _restart_deadline(self) -> None:
        await self._cancel_deadline()
        self._ending = self.create_task(self._end_late(), "deadline")

    async def _cancel_deadline(self) -> None:
        ending, self._ending = self._ending, None
        if ending is not None:
            await self.cancel_task(ending)

    async def _end_late(self) -> None:
        """Make the text final whose end the server does not report."""
        await asyncio.sleep(self._final_s)
        self._ending = None
        if self._ends:
            end_ms = self._ends[-1]
            self._ends.clear()
            self.confirm_finalize()
            await self._push_final(end_ms)
            await self.report_owed(bool(self._ends))

    async def _push_final(self, end_ms: int) -> None:
        """Push the text so far, whose last voice ended at this time."""
        text, self._text = self._text.strip(), ""
        began_ms, self._began_ms = min(self._began_ms, end_ms), max(end_ms, self._voice_ms)
        if not text:
            return
        # A text that is longer than a message is not repeated by one.
        if len(self._passed) <= MOST_BYTES:
            self._passed += " ".join(text.split()) + " "
        words = estimated_words(text, began_ms, end_ms)
        await self.emit_stt_usage_metrics()
        await self.push_frame(TranscriptionFrame(text, "", time_now_iso8601(), result=words, finalized=True))

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self.sample_rate) * PCM_BYTES_PER_SAMPLE

    def _ms(self, position: int) -> int:
        rate_hz = self.sample_rate
        return samples_to_ms(position // PCM_BYTES_PER_SAMPLE, rate_hz) if rate_hz else 0
