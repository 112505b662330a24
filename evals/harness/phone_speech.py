"""Speech of callers as the packets of a telephone line: flite's voices, at one level, cut at their edges.

The bot speaks with slt; callers use the others. The peak is that of ``evals.harness.speech``, so that a
telephone differs from a browser by its line and not by its callers.
"""

from functools import cache

import numpy as np

from parley.audio import g711
from parley.audio.audible import AudibleRule, audible_spans, is_loud
from parley.audio.resample import Resampler
from parley.core.errors import MediaError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.evals.harness.speech import PEAK
from parley.evals.harness.voices import synthesised
from parley.evals.human.hesitations import ComposedTurn
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.flite import FliteSettings
from parley.protocols.twilio_media import PACKET_BYTES, RATE_HZ, SILENCE

PACKET = SILENCE * PACKET_BYTES
PACKETS_PER_S = RATE_HZ // PACKET_BYTES
VOICES = ("rms", "awb")
NOISE = AudibleRule(threshold_dbfs=-60.0)


def quiet(seconds: float) -> list[bytes]:
    """Return packets of silence."""
    return [PACKET] * round(seconds * PACKETS_PER_S)


def packets(pcm: bytes, rate_hz: int = 16_000) -> list[bytes]:
    """Convert 16-bit PCM to the packets of a telephone line."""
    samples = Resampler(rate_hz, RATE_HZ).feed(pcm16_to_float(pcm))
    mu_law = g711.encode(np.frombuffer(float_to_pcm16(samples), "<i2").astype(np.int16), g711.Law.MU)
    mu_law += SILENCE * (-len(mu_law) % PACKET_BYTES)
    return [mu_law[at : at + PACKET_BYTES] for at in range(0, len(mu_law), PACKET_BYTES)]


def samples_of(mu_law: bytes) -> np.ndarray:
    """Decode to float32, (samples,), 8 kHz, in [-1, 1]."""
    return g711.decode(mu_law, g711.Law.MU).astype(np.float32) / 32_768


@cache
def is_noise(mu_law: bytes) -> bool:
    """Return whether a packet is silence or comfort noise, of which 20 ms have -63 dBFS at most."""
    return not is_loud(samples_of(mu_law), NOISE)


@cache
def is_speech(mu_law: bytes) -> bool:
    """Return whether a packet is audible: comfort noise (-66 dB) is not, and neither is a pause
    of a voice.
    """
    return is_loud(samples_of(mu_law))


@cache
def said(text: str, voice: str = VOICES[0]) -> tuple[bytes, ...]:
    """Return the packets of a text, from its first audible sample to its last."""
    engine = _engine(voice)
    samples = pcm16_to_float(synthesised(engine, text))
    peak = float(np.abs(samples).max(initial=0.0))
    loud = samples * (PEAK / peak) if peak else samples
    spans = audible_spans(loud, engine.rate_hz)
    if not spans:
        raise MediaError("the caller's voice is silent")
    return tuple(packets(float_to_pcm16(loud[spans[0].first : spans[-1].last + 1]), engine.rate_hz))


def turn_packets(turn: ComposedTurn) -> tuple[bytes, ...]:
    """Return the packets of a turn of a recorded caller."""
    return tuple(packets(float_to_pcm16(turn.samples), turn.rate_hz))


@cache
def _engine(voice: str) -> TextToSpeech:
    return TTS.create("flite", FliteSettings.model_validate({"voice": voice}))
