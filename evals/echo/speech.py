"""Voices on the simulated speakerphones: the bot in one voice, callers in others.

The bot is flite's slt, the callers are flite's rms and awb and espeak-ng. All are embedded engines of a
deployment, so that the evaluation needs nothing but the program. Synthetic voices have cleaner pauses and
steadier levels than people.
"""

from collections.abc import Sequence

import numpy as np
import soxr

from parley.core.media import pcm16_to_float
from parley.evals.echo.rooms import RATE_HZ
from parley.evals.harness.voices import synthesised
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.espeak import EspeakSettings
from parley.models.tts.flite import FliteSettings

BOT = "slt"
CALLERS = ("rms", "awb", "en-us")
BOT_LINES = (
    "Hello, this is Parley. Ask me about this service, or about Northwind Bank.",
    "You can block a lost card in the app, at any branch, or by telling me its last four digits.",
    "A transfer to another bank usually arrives on the next working day.",
    "The fee for a replacement card is five dollars, and it comes by post within a week.",
    "I am sorry, I do not know that. Would you like to speak to a person?",
    "Your savings account pays two percent a year, and the interest is added every month.",
    "Our branches are open from nine in the morning until five in the afternoon.",
    "Please keep your reference number, because you will need it when you call again.",
    "The limit for cash withdrawals is four hundred dollars a day.",
    "If the payment was made by mistake, we can ask the other bank to send it back.",
)
CALLER_LINES = (
    "wait, I wanted to ask about something else",
    "no, that is not what I meant at all",
    "how long does it take until the new card arrives",
    "can you tell me my account balance please",
    "stop, please, and listen to me for a moment",
    "what happens if somebody else has found my card",
    "I would like to change the address of my account",
    "and what does it cost when I use it abroad",
)


class Voices:
    """Synthesiser that caches its sentences. Blocking."""

    def __init__(self) -> None:
        self._engines: dict[str, TextToSpeech] = {}
        self._spoken: dict[tuple[str, str], np.ndarray] = {}

    def say(self, voice: str, text: str) -> np.ndarray:
        """Return a text as sound: float32, (samples,), 16 kHz, without silence at both ends."""
        if (voice, text) not in self._spoken:
            self._spoken[voice, text] = self._synthesise(voice, text)
        return self._spoken[voice, text]

    def talk(self, voice: str, lines: Sequence[str], *, samples: int, pause_ms: int) -> np.ndarray:
        """Return lines with pauses between them, in order and repeated, cut to length."""
        pause = np.zeros(RATE_HZ * pause_ms // 1000, np.float32)
        parts: list[np.ndarray] = []
        length = 0
        while length < samples:
            for line in lines:
                parts += [self.say(voice, line), pause]
                length += len(parts[-2]) + len(pause)
        return np.concatenate(parts)[:samples]

    def _synthesise(self, voice: str, text: str) -> np.ndarray:
        if voice not in self._engines:
            if voice in ("slt", "rms", "awb"):
                self._engines[voice] = TTS.create("flite", FliteSettings.model_validate({"voice": voice}))
            else:
                self._engines[voice] = TTS.create("espeak", EspeakSettings.model_validate({"voice": voice}))
        engine = self._engines[voice]
        samples = pcm16_to_float(synthesised(engine, text))
        if engine.rate_hz != RATE_HZ:
            samples = soxr.resample(samples, engine.rate_hz, RATE_HZ)
        loud = np.flatnonzero(np.abs(samples) > 0.01)
        return samples[loud[0] : loud[-1] + 1].astype(np.float32) if loud.size else samples
