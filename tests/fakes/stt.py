"""Scripted speech to text: loud audio becomes words, one per ``word_ms`` of it, at no cost.

The tests of child processes host this engine, which is why its settings are a pydantic model.
"""

import os
import time

import numpy as np
from pydantic import BaseModel, ConfigDict

from parley.core.errors import EngineError, ShapeError
from parley.core.media import WordTime, samples_to_ms
from parley.models.stt import Transcript

STEP_SAMPLES = 160


class ScriptedSttSettings(BaseModel):
    """Words and faults of the scripted recogniser.

    Attributes:
        words: spoken in order, again from the first after the last, anew in each utterance.
        word_ms: loud audio per word.
        confidence: confidence of every final word.
        threshold: root mean square of 10 ms from which audio is loud, 0..1.
        raise_after_ms: length of an utterance at which an EngineError is raised; 0 for never.
        bug_after_ms: the same for a ValueError.
        exit_after_ms: the same for the end of the process.
        work_ms: time that each ``feed`` sleeps.
        busy_ms: processor time that each ``feed`` uses.
        load_error: the engine does not load.
        floor_log_odds: value of every final transcript.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[str, ...] = ("one", "two", "three", "four", "five")
    word_ms: int = 200
    confidence: float = 0.9
    threshold: float = 0.01
    raise_after_ms: int = 0
    bug_after_ms: int = 0
    exit_after_ms: int = 0
    work_ms: int = 0
    busy_ms: int = 0
    load_error: bool = False
    floor_log_odds: float | None = None


class ScriptedStt:
    """Engine that is shared by all streams."""

    rate_hz = 16_000

    def __init__(self, settings: ScriptedSttSettings | None = None) -> None:
        self._settings = settings or ScriptedSttSettings()
        if self._settings.load_error:
            raise EngineError("no weights", engine="scripted", retryable=False)

    def open_stream(self) -> "ScriptedStream":
        return ScriptedStream(self._settings)


class ScriptedStream:
    """The stream of one caller."""

    def __init__(self, settings: ScriptedSttSettings) -> None:
        self._settings = settings
        self._steps_per_word = max(1, settings.word_ms * 16 // STEP_SAMPLES)
        self._open = False
        self._rest = b""
        self._samples = 0
        self._loud: list[int] = []
        self._said = 0

    def start(self) -> None:
        self._open = True
        self._rest = b""
        self._samples = 0
        self._loud = []
        self._said = 0

    def feed(self, pcm: bytes) -> Transcript | None:
        self._check_open()
        if len(pcm) % 2:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        if self._settings.work_ms:
            time.sleep(self._settings.work_ms / 1000)
        until_s = time.monotonic() + self._settings.busy_ms / 1000
        while time.monotonic() < until_s:
            pass
        self._hear(pcm)
        self._misbehave()
        if len(self._loud) // self._steps_per_word == self._said:
            return None
        words = self._words()
        self._said = len(words)
        return Transcript(" ".join(word.text for word in words))

    def finish(self) -> Transcript:
        self._check_open()
        self._open = False
        words = self._words()
        confidence = self._settings.confidence if words else 0.0
        return Transcript(
            " ".join(w.text for w in words),
            words,
            confidence,
            final=True,
            floor_log_odds=self._settings.floor_log_odds,
        )

    def discard(self) -> None:
        self._open = False

    def close(self) -> None:
        self._open = False

    def _check_open(self) -> None:
        if not self._open:
            raise EngineError("no utterance is open", engine="scripted", retryable=False)

    def _hear(self, pcm: bytes) -> None:
        audio = np.frombuffer(self._rest + pcm, dtype="<i2").astype(np.float32) / 32_768
        whole = len(audio) // STEP_SAMPLES * STEP_SAMPLES
        self._rest = (self._rest + pcm)[whole * 2 :]
        for step in audio[:whole].reshape(-1, STEP_SAMPLES):
            if float(np.vdot(step, step)) >= self._settings.threshold**2 * STEP_SAMPLES:
                self._loud.append(self._samples)
            self._samples += STEP_SAMPLES

    def _words(self) -> tuple[WordTime, ...]:
        steps = self._steps_per_word
        spoken = []
        for count, first in enumerate(range(0, len(self._loud) - steps + 1, steps)):
            start_ms = samples_to_ms(self._loud[first], 16_000)
            end_ms = samples_to_ms(self._loud[first + steps - 1] + STEP_SAMPLES, 16_000)
            word = self._settings.words[count % len(self._settings.words)]
            spoken.append(WordTime(word, start_ms, end_ms, self._settings.confidence))
        return tuple(spoken)

    def _misbehave(self) -> None:
        heard_ms = samples_to_ms(self._samples, 16_000)
        if 0 < self._settings.raise_after_ms <= heard_ms:
            raise EngineError("scripted failure", engine="scripted")
        if 0 < self._settings.bug_after_ms <= heard_ms:
            raise ValueError("scripted bug")
        if 0 < self._settings.exit_after_ms <= heard_ms:
            os._exit(3)
