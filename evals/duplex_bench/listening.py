"""Words of a caller for an engine that does not transcribe: the shipped recogniser in parallel, on one clock.

The engine's own audio is cut into utterances by voice activity detection, with the settings of the engine's
input (``SpeechInputSettings``). The utterances go to a recogniser in a process of its own
(``runtime.engine_process``), as in a deployment. Words are reported when they arrive, even late: nothing here
waits for them, and nothing uses the script. A recogniser that fails is opened anew. Its words are lost and
counted, because a run in which that happened measures the machine and not the engine.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np
from loguru import logger

from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.core.speech_reports import TranscriptWords
from parley.models.omni.two_tier.speech_input import SpeechInputSettings
from parley.models.stt import Transcript
from parley.models.vad import VoiceActivityDetector
from parley.processors.perception.engine_stt import EngineSttSettings
from parley.runtime.utterances import UtteranceEngine, UtteranceStream
from parley.turn_taking.voice_gate import GateEvent, VoiceGate


class ParallelRecogniser:
    """Recogniser of one caller's words. Runs on the loop.

    Args:
        engine: the recogniser.
        vad: shared weights.
        on_words: called with words as soon as they are recognised.

    Attributes:
        understood: final texts, in order.
        late_ms: of each, from the report of the voice's end until its arrival.
        failures: number of failures of the recogniser.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        vad: VoiceActivityDetector,
        on_words: Callable[[TranscriptWords], None],
    ) -> None:
        self._engine, self._vad, self._on_words = engine, vad, on_words
        chosen, self._stt = SpeechInputSettings(), EngineSttSettings()
        self._voice = vad.open_stream()
        self._gate = VoiceGate(vad.window_samples, rate_hz=vad.rate_hz, **chosen.model_dump())
        self._before_samples = (self._stt.pre_speech_ms + chosen.start_ms) * vad.rate_hz // 1000
        self._before: deque[np.ndarray] = deque()
        self._held = 0
        self._pending = np.zeros(0, np.float32)
        self._stream: UtteranceStream[Transcript] | None = None
        self._speaks = False
        self._finals: deque[asyncio.Future[Transcript]] = deque()
        self._told_s = 0.0
        self._reopening: asyncio.Task[None] | None = None
        self.understood: list[str] = []
        self.late_ms: list[int] = []
        self.failures = 0

    async def open(self) -> None:
        """Open a stream.

        Raises:
            EngineError: there is none.
        """
        self._stream = await self._engine.open_stream(self._on_partial, self._on_failure)

    def hear(self, piece: np.ndarray) -> None:
        """Take the next piece of the caller's audio: float32, (samples,), at the detector's rate."""
        if self._speaks and self._stream is not None:
            self._stream.feed(float_to_pcm16(piece))
        else:
            self._keep(piece)
        self._pending = np.concatenate((self._pending, piece))
        window = self._vad.window_samples
        while len(self._pending) >= window:
            judged, self._pending = self._pending[:window], self._pending[window:]
            power = float(np.vdot(judged, judged)) / window
            event = self._gate.on_window(self._voice.probability(judged), power)
            if event is GateEvent.STARTED:
                self._start()
            elif event is GateEvent.STOPPED:
                self._stop()

    def close(self) -> None:
        """Release the stream; words that have not arrived are dropped."""
        for final in self._finals:
            final.cancel()
        self._finals.clear()
        if self._reopening is not None:
            self._reopening.cancel()
        if self._stream is not None:
            self._stream.close()

    def _keep(self, piece: np.ndarray) -> None:
        self._before.append(piece)
        self._held += len(piece)
        while self._held - len(self._before[0]) >= self._before_samples:
            self._held -= len(self._before.popleft())

    def _start(self) -> None:
        if self._stream is None:
            return
        self._speaks = True
        self._stream.start()
        self._stream.feed(float_to_pcm16(np.concatenate(list(self._before))))
        self._before.clear()
        self._held = 0

    def _stop(self) -> None:
        spoke, self._speaks = self._speaks, False
        if self._stream is None or not spoke:
            return
        final, ended_s = self._stream.finish(), asyncio.get_running_loop().time()
        self._finals.append(final)
        final.add_done_callback(lambda done: self._on_final(done, ended_s))

    def _on_partial(self, heard: Transcript) -> None:
        now_s = asyncio.get_running_loop().time()
        if heard.text and (now_s - self._told_s) * 1000 >= self._stt.partial_interval_ms:
            self._told_s = now_s
            self._on_words(TranscriptWords(heard.text, False, _confidences(heard)))

    def _on_final(self, final: "asyncio.Future[Transcript]", ended_s: float) -> None:
        if final.cancelled():
            return
        if final in self._finals:
            self._finals.remove(final)
        if final.exception() is not None:
            # Its stream has failed too, and reports that itself.
            return
        heard = final.result()
        self.late_ms.append(round((asyncio.get_running_loop().time() - ended_s) * 1000))
        self.understood.append(heard.text)
        if heard.text:
            self._on_words(TranscriptWords(heard.text, True, _confidences(heard)))

    def _on_failure(self, error: EngineError) -> None:
        logger.warning(f"duplex bench: words are lost: {error}")
        self.failures += 1
        self._stream, self._speaks = None, False
        self._reopening = asyncio.get_running_loop().create_task(self._reopen(), name="bench.reopen")

    async def _reopen(self) -> None:
        while self._stream is None:
            try:
                await self.open()
            except EngineError as error:
                logger.warning(f"duplex bench: no recogniser: {error}")
                await asyncio.sleep(self._stt.reopen_ms / 1000)


def _confidences(heard: Transcript) -> tuple[float, ...]:
    """Return the confidence of each word; of a partial, which has none, one for all: it confirms nothing."""
    if len(heard.words) == len(heard.text.split()):
        return tuple(word.confidence for word in heard.words)
    return (heard.confidence,)
