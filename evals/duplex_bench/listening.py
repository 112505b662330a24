"""The words of a caller for an engine that does not transcribe: the shipped recogniser, beside, on one clock.

The same audio that the engine hears is cut into utterances by voice activity, as the engine's own ears cut it
(``EarSettings``), and given to a recogniser in a process of its own (``runtime.engine_process``), as in a
deployment. What it understands is told when it is there, be that late: nothing here waits for it, and nothing
knows the script.
"""

import asyncio
from collections import deque
from collections.abc import Callable

import numpy as np

from core.errors import EngineError
from core.media import float_to_pcm16
from models.omni.two_tier.ears import EarSettings, Words
from models.stt import Transcript
from models.vad import VoiceActivityDetector
from processors.perception.engine_stt import EngineSttSettings
from runtime.utterances import UtteranceEngine, UtteranceStream
from turn_taking.voice_gate import GateEvent, VoiceGate


class Beside:
    """One caller. On the loop.

    Args:
        engine: the recogniser.
        vad: shared weights.
        on_words: told what was understood, as soon as it is.

    Attributes:
        understood: final texts, in order.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        vad: VoiceActivityDetector,
        on_words: Callable[[Words], None],
    ) -> None:
        self._engine, self._vad, self._on_words = engine, vad, on_words
        chosen, self._stt = EarSettings(), EngineSttSettings()
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
        self._failure: EngineError | None = None
        self.understood: list[str] = []

    async def open(self) -> None:
        """Have a stream.

        Raises:
            EngineError: there is none.
        """
        self._stream = await self._engine.open_stream(self._on_partial, self._on_failure)

    def hear(self, piece: np.ndarray) -> None:
        """The next of the caller's audio: float32, (samples,), at the detector's rate.

        Raises:
            EngineError: the recogniser failed.
        """
        if self._failure is not None:
            raise self._failure
        stream = self._stream
        assert stream is not None
        if self._speaks:
            stream.feed(float_to_pcm16(piece))
        else:
            self._keep(piece)
        self._pending = np.concatenate((self._pending, piece))
        window = self._vad.window_samples
        while len(self._pending) >= window:
            judged, self._pending = self._pending[:window], self._pending[window:]
            power = float(np.vdot(judged, judged)) / window
            event = self._gate.on_window(self._voice.probability(judged), power)
            if event is GateEvent.STARTED:
                self._start(stream)
            elif event is GateEvent.STOPPED:
                self._stop(stream)

    def close(self) -> None:
        """Release the stream; what is not understood by now is not wanted."""
        for final in self._finals:
            final.cancel()
        self._finals.clear()
        if self._stream is not None:
            self._stream.close()

    def _keep(self, piece: np.ndarray) -> None:
        self._before.append(piece)
        self._held += len(piece)
        while self._held - len(self._before[0]) >= self._before_samples:
            self._held -= len(self._before.popleft())

    def _start(self, stream: UtteranceStream[Transcript]) -> None:
        self._speaks = True
        stream.start()
        stream.feed(float_to_pcm16(np.concatenate(list(self._before))))
        self._before.clear()
        self._held = 0

    def _stop(self, stream: UtteranceStream[Transcript]) -> None:
        self._speaks = False
        final = stream.finish()
        self._finals.append(final)
        final.add_done_callback(self._on_final)

    def _on_partial(self, heard: Transcript) -> None:
        now_s = asyncio.get_running_loop().time()
        if heard.text and (now_s - self._told_s) * 1000 >= self._stt.partial_interval_ms:
            self._told_s = now_s
            self._on_words(Words(heard.text, False, _confidences(heard)))

    def _on_final(self, final: "asyncio.Future[Transcript]") -> None:
        if final.cancelled():
            return
        if final in self._finals:
            self._finals.remove(final)
        if (error := final.exception()) is not None:
            self._on_failure(
                error if isinstance(error, EngineError) else EngineError(str(error), engine="stt")
            )
            return
        heard = final.result()
        self.understood.append(heard.text)
        if heard.text:
            self._on_words(Words(heard.text, True, _confidences(heard)))

    def _on_failure(self, error: EngineError) -> None:
        self._failure = error


def _confidences(heard: Transcript) -> tuple[float, ...]:
    """Of each word; of a partial, which has none, one for all: it confirms nothing."""
    if len(heard.words) == len(heard.text.split()):
        return tuple(word.confidence for word in heard.words)
    return (heard.confidence,)
