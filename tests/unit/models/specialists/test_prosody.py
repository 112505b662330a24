"""Prosody of stretches of a voice against the speaker's own."""

from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import EngineError, ShapeError
from parley.core.timeline import ProsodyPayload
from parley.models.specialists import VoiceStretch
from parley.models.specialists.prosody import (
    BASELINE_S,
    MEASURES,
    MOOD_CONFIDENCE,
    RATE_HZ,
    ProsodySpecialist,
    ProsodyStream,
    TensionLine,
    measure,
)
from parley.sequencer.fusion import FusionSettings
from parley.sequencer.rendering import RenderingSettings


def voice(pitch_hz: float = 120.0, *, gain: float = 0.1, seconds: float = 1.0) -> np.ndarray:
    """Return a buzz whose loudness and pitch vary a little, as a voice's do: float32, (samples,)."""
    time_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    pitch = pitch_hz * (1 + 0.03 * np.sin(2 * np.pi * 3 * time_s))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE_HZ
    buzz = sum(np.sin(number * phase) / number for number in range(1, 12))
    return (gain * buzz * (1 + 0.3 * np.sin(2 * np.pi * 4 * time_s))).astype(np.float32)


def judged(stream: ProsodyStream, audio: np.ndarray) -> ProsodyPayload:
    (finding,) = stream.judge(VoiceStretch(audio, 1_000, 2_000))
    assert finding.prosody is not None and 0 <= finding.confidence <= 1
    assert (finding.prosody.start_us, finding.prosody.end_us) == (1_000, 2_000)
    return finding.prosody


def test_nothing_is_compared_before_the_voice_is_known():
    stream = ProsodySpecialist().open_stream()
    seconds = 0
    while (found := judged(stream, voice())).stress is None:
        assert found.pitch_hz == pytest.approx(120, rel=0.05) and found.level_offset_db is None
        seconds += 1
    assert seconds >= BASELINE_S
    assert found.level_offset_db == pytest.approx(0, abs=0.1)
    assert found.pitch_offset_semitones == pytest.approx(0, abs=0.1)


def test_a_louder_and_higher_voice_is_measured_and_scores_as_more_tense():
    stream = ProsodySpecialist().open_stream()
    for _ in range(6):
        calm = judged(stream, voice())
    loud = judged(stream, voice(180, gain=0.4))
    assert loud.level_offset_db == pytest.approx(12, abs=1)
    assert loud.pitch_offset_semitones == pytest.approx(7, abs=1)
    assert calm.stress is not None and loud.stress is not None and loud.stress > calm.stress


def test_a_mood_is_no_surer_than_what_was_measured_of_it_and_less_while_the_voice_is_new():
    stream = ProsodySpecialist().open_stream()
    confidences = []
    for _ in range(20):
        (finding,) = stream.judge(VoiceStretch(voice(), 0, 1))
        assert finding.prosody is not None
        if finding.prosody.stress is not None:
            confidences.append(finding.confidence)
    assert FusionSettings().min_confidence < confidences[0] < confidences[-1] == MOOD_CONFIDENCE
    assert confidences[-1] < RenderingSettings().sure


def test_callers_are_compared_with_themselves_alone():
    specialist = ProsodySpecialist()
    quiet, loud = specialist.open_stream(), specialist.open_stream()
    for _ in range(6):
        found = judged(quiet, voice(gain=0.02)), judged(loud, voice(gain=0.4))
    assert [each.level_offset_db for each in found] == pytest.approx([0, 0], abs=0.1)


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(RATE_HZ, np.float32),
        np.full(RATE_HZ, np.nan, np.float32),
        np.full(RATE_HZ, np.inf, np.float32),
        np.zeros(0, np.float32),
        voice(seconds=0.1),
    ],
    ids=["silent", "not a number", "infinite", "empty", "too short"],
)
def test_sound_without_a_voice_says_nothing_and_changes_nothing(audio: np.ndarray):
    stream = ProsodySpecialist().open_stream()
    for _ in range(6):
        before = judged(stream, voice())
    assert stream.judge(VoiceStretch(audio, 0, 1)) == ()
    after = judged(stream, voice())
    assert after.level_offset_db == pytest.approx(before.level_offset_db, abs=0.1)


def test_audio_of_two_channels_is_refused():
    with pytest.raises(ShapeError):
        measure(np.zeros((2, RATE_HZ), np.float32))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"deviations": {}, "weights": {}, "bias": "x"}'], ids=str)
def test_a_file_that_is_no_line_is_refused(tmp_path: Path, text: str):
    path = tmp_path / "line.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EngineError):
        TensionLine.load(path)


def test_the_line_that_ships_has_a_weight_for_each_measure():
    line = TensionLine.load()
    assert line.weights.shape == line.deviations.shape == (len(MEASURES),)
    assert (
        line.score(np.zeros(len(MEASURES))) < 0.5 < line.score(10 * line.deviations * np.sign(line.weights))
    )
