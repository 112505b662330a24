"""Find the utterances of a whole recording, for a recogniser that takes one at a time.

A recording without a voice has none. Recognisers lose and repeat words in audio with long pauses: of one
sentence that was said 14 times with half a second between, in parts of 20 s, Moonshine tiny returned six.
Blocks, at about 1 % of the length of the recording.
"""

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.vad import VoiceActivityDetector
from parley.models.vad.meter import VoiceMeter
from parley.turn_taking.voice_gate import GateEvent, GateState, VoiceGate

# Silence that ends an utterance, and the silence around one that its recogniser gets.
PAUSE_MS, MARGIN_MS = 400, 250


def voiced_parts(
    vad: VoiceActivityDetector, pcm: bytes, *, confidence: float, start_ms: int, least_db: float
) -> list[tuple[int, int]]:
    """Return the utterances of a recording as (first, end) in samples, in order, without overlaps.

    Args:
        vad: voice activity, whose rate the recording has.
        pcm: 16-bit mono.
        confidence: probability from which a window counts as voice.
        start_ms: shortest voice.
        least_db: level of the softest voice, dB full scale.

    Raises:
        EngineError: the detector failed.
    """
    window, rate_hz = vad.window_samples, vad.rate_hz
    meter = VoiceMeter(vad.open_stream(), window, rate_hz=rate_hz, least_db=least_db)
    gate = VoiceGate(
        window,
        rate_hz=rate_hz,
        start_ms=start_ms,
        stop_ms=PAUSE_MS,
        pause_ms=PAUSE_MS,
        confidence=confidence,
        least_db=least_db,
    )
    voices: list[tuple[int, int]] = []
    samples = len(pcm) // PCM_BYTES_PER_SAMPLE
    window_bytes = window * PCM_BYTES_PER_SAMPLE
    for start in range(0, samples * PCM_BYTES_PER_SAMPLE, window_bytes):
        piece = pcm[start : start + window_bytes].ljust(window_bytes, b"\0")
        [(probability, power)] = meter.measure(piece)
        event = gate.on_window(probability, power)
        if event is GateEvent.STOPPED and gate.started_sample is not None:
            voices.append((gate.started_sample, gate.stopped_sample or gate.position))
    if gate.state in (GateState.SPEAKING, GateState.STOPPING) and gate.started_sample is not None:
        voices.append((gate.started_sample, samples))
    margin = ms_to_samples(MARGIN_MS, rate_hz)
    parts: list[tuple[int, int]] = []
    for number, (began, ended) in enumerate(voices):
        before = parts[-1][1] if parts else 0
        after = voices[number + 1][0] if number + 1 < len(voices) else samples
        parts.append((max(before, began - margin), min(ended + margin, (ended + after) // 2, samples)))
    return parts
