"""Recogniser of Kyutai's moshi-server as a service of Pipecat: audio in, words with times out.

The model writes words half a second after they were said. When voice activity reports the end of a voice, a
marker is sent, and silence of the length of that delay right after it. The server processes the silence at
once, as fast as it can, and returns the marker: all words before it are there, and the transcript is final.
The turn waits for them meanwhile (``WordsOwedFrame``). The silence is taken out of the times of later words.

The server's own estimate of a pause, which comes with each step, is not used: the deployment's end of turn
decides. Words that have come while a connection is lost are dropped with it; ``FailoverSttService`` has their
audio. One task, owned by the base class, receives. Words without an end of a voice are bounded by
``MOST_WORDS``, and what waits to be sent by one step of audio.
"""

from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import replace

import numpy as np
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import WebsocketSTTService
from pipecat.utils.time import time_now_iso8601

from parley.audio.resample import Resampler
from parley.core.errors import PeerError
from parley.core.media import pcm16_to_float, samples_to_ms
from parley.processors.perception.hosted_words import HostedWord
from parley.processors.perception.owed_words import OwesWords
from parley.processors.pipecat_internals import SocketRecogniser, VoiceEdges
from parley.protocols.moshi_asr import (
    FRAME_SAMPLES,
    RATE_HZ,
    MarkerReturned,
    ServerRefused,
    WordFinished,
    WordRecognised,
    audio_message,
    marker_message,
    read_asr_message,
)

# A caller says 200 words in a minute. More without a pause become final without one.
MOST_WORDS = 500
# Ends of voices that may wait for their markers. A server that owes more is dead.
MOST_WAITING = 64
# Steps of silence beyond the delay, as in Kyutai's own client.
MORE_STEPS = 1
# The end of a voice is noticed after 0.2 s, and Kyutai gives 0.125 s for half a second of silence. It is an
# estimate for Pipecat's own turn policies, which Parley does not use.
TTFS_P99_S = 0.5
# The server closes a connection without audio after 120 s; the caller's audio may be muted for longer.
KEEPALIVE_S = 30.0


class StreamTimes:
    """Times in the audio that was sent, which contains silence that the caller's audio has not."""

    def __init__(self) -> None:
        # Samples that were sent, silence included, and the places and lengths of the silence in them.
        self.sent = 0
        self._silences: deque[tuple[int, int]] = deque(maxlen=MOST_WAITING)
        # Silence that is too long ago to be listed.
        self._earlier = 0

    def add_silence(self, samples: int) -> None:
        """Note that silence was sent."""
        if len(self._silences) == MOST_WAITING:
            self._earlier += self._silences[0][1]
        self._silences.append((self.sent, samples))
        self.sent += samples

    def caller_ms(self, at_s: float) -> int:
        """Return the time in the caller's audio of a time in the audio that was sent."""
        position = min(max(0, round(at_s * RATE_HZ)), self.sent)
        before = self._earlier + sum(
            min(length, position - start) for start, length in self._silences if start < position
        )
        return samples_to_ms(max(0, position - before), RATE_HZ)


class KyutaiSttService(OwesWords, VoiceEdges, SocketRecogniser, WebsocketSTTService):
    """Recogniser of one call.

    Args:
        url: address of the server's streaming recognition.
        api_key: one of the server's ``authorized_ids``.
        delay_ms: delay of the server's model.
    """

    def __init__(self, url: str, api_key: str, *, delay_ms: int) -> None:
        super().__init__(
            ttfs_p99_latency=TTFS_P99_S,
            keepalive_timeout=KEEPALIVE_S,
            settings=STTSettings(model=None, language=None),
        )
        self._url, self._key = url, api_key
        self._flush_steps = -(-delay_ms * RATE_HZ // (1_000 * FRAME_SAMPLES)) + MORE_STEPS
        self._resampler: Resampler | None = None
        self._is_voice = False
        self._begin_stream()

    def _begin_stream(self) -> None:
        # Audio for the next step, 24 kHz.
        self._audio = np.zeros(0, np.float32)
        self._times = StreamTimes()
        self._words: list[HostedWord] = []
        # The last marker that was sent; those that have not come back, with the ends of their voices.
        self._marker = 0
        self._waiting: deque[tuple[int, int]] = deque(maxlen=MOST_WAITING)

    def can_generate_metrics(self) -> bool:
        """Return True: the time from end of voice to final, and the seconds of audio, are measured."""
        return True

    def address(self) -> tuple[str, dict[str, str]]:
        return self._url, {"kyutai-api-key": self._key}

    async def connected(self) -> None:
        self._begin_stream()
        await self.report_owed(bool(self._waiting))

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Send audio; words come from the receiver."""
        if self._resampler is None:
            self._resampler = Resampler(self.sample_rate, RATE_HZ)
        self._audio = np.concatenate((self._audio, self._resampler.feed(pcm16_to_float(audio))))
        whole = len(self._audio) - len(self._audio) % FRAME_SAMPLES
        frames = self._audio[:whole].reshape(-1, FRAME_SAMPLES)
        self._audio = self._audio[whole:]
        self._times.sent += whole
        await self.send_messages(audio_message(frame) for frame in frames)
        yield None

    async def voice_stopped(self, frame: VADUserStoppedSpeakingFrame) -> None:
        if not self._is_voice:
            # The frame comes twice when voice activity is detected both before and after this processor.
            return
        await super().voice_stopped(frame)
        self._is_voice = False
        self._marker += 1
        rest = FRAME_SAMPLES - len(self._audio)
        last = np.pad(self._audio, (0, rest))
        ended_s = self._times.sent / RATE_HZ + len(self._audio) / RATE_HZ - frame.stop_secs
        self._times.sent += len(self._audio)
        self._times.add_silence(rest + self._flush_steps * FRAME_SAMPLES)
        self._audio = np.zeros(0, np.float32)
        silence = audio_message(np.zeros(FRAME_SAMPLES, np.float32))
        # The marker may come back before all of the silence has been sent.
        self._waiting.append((self._marker, self._times.caller_ms(ended_s)))
        self.request_finalize()
        if not await self.send_messages(
            (audio_message(last), marker_message(self._marker), *[silence] * self._flush_steps)
        ):
            self._waiting.clear()
        await self.report_owed(bool(self._waiting))

    async def voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        if not self._is_voice:
            await super().voice_started(frame)
            self._is_voice = True

    async def keep_alive(self) -> None:
        self._times.add_silence(FRAME_SAMPLES)
        await self.send_messages([audio_message(np.zeros(FRAME_SAMPLES, np.float32))])

    async def take_message(self, message: str | bytes) -> None:
        match read_asr_message(message):
            case WordRecognised(text, start_s):
                await self._add_word(text, start_s)
            case WordFinished(stop_s) if self._words:
                last = self._words[-1]
                self._words[-1] = replace(last, end_ms=max(last.start_ms, self._times.caller_ms(stop_s)))
            case MarkerReturned(number):
                await self._end_utterance(number)
            case ServerRefused(text):
                raise PeerError(f"the server refuses: {text[:200]}")

    async def _add_word(self, text: str, start_s: float) -> None:
        start_ms = self._times.caller_ms(start_s)
        self._end_last_word(start_ms)
        self._words.append(HostedWord(text, start_ms, start_ms, None))
        if len(self._words) >= MOST_WORDS:
            await self._push_final()
        else:
            text = " ".join(word.text for word in self._words)
            await self.push_frame(InterimTranscriptionFrame(text, "", time_now_iso8601()))

    def _end_last_word(self, at_ms: int) -> None:
        """Give the last word an end, where the server has not reported it."""
        if self._words and self._words[-1].end_ms == self._words[-1].start_ms:
            self._words[-1] = replace(self._words[-1], end_ms=max(self._words[-1].start_ms, at_ms))

    async def _end_utterance(self, marker: int) -> None:
        """Push the words before a marker; they are final."""
        while self._waiting and self._waiting[0][0] <= marker:
            _, ended_ms = self._waiting.popleft()
            self._end_last_word(ended_ms)
        self.confirm_finalize()
        await self._push_final()
        await self.report_owed(bool(self._waiting))

    async def _push_final(self) -> None:
        if not self._words:
            return
        words, self._words = tuple(self._words), []
        text = " ".join(word.text for word in words)
        await self.emit_stt_usage_metrics()
        await self.push_frame(TranscriptionFrame(text, "", time_now_iso8601(), result=words, finalized=True))
