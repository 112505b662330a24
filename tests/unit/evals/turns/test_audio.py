"""Scripted calls through engines: a real voice, everything else scripted."""

import math
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError
from parley.evals.turns import audio, tuning
from parley.evals.turns.calibration import SEED, fit, samples
from parley.evals.turns.callers import CallSpec, ScriptedCall, Silence, generate, recognised, with_new_pauses
from parley.evals.turns.callers import ScriptedTurn as CallTurn
from parley.evals.turns.evidence import VoiceWeights
from parley.turn_taking.endpointing.evidence_voice import USUAL_TEMPO
from tests.fakes.stt import ScriptedStt
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad

SPEC = CallSpec(callers=1, turns=2)


def silences(calls: list[ScriptedCall]) -> Iterator[Silence]:
    return (silence for call in calls for turn in call.turns for silence in turn.silences)


@pytest.fixture(scope="module")
def script() -> list[ScriptedCall]:
    return list(generate(SPEC, 5))


@pytest.fixture(scope="module")
def turn() -> ScriptedTurn:
    return ScriptedTurn((0.9,))


@pytest.fixture(scope="module")
def measured(script: list[ScriptedCall], turn: ScriptedTurn) -> tuple[list[ScriptedCall], audio.Lags]:
    return audio.measure(script, SPEC, audio.Engines(EnergyVad(), ScriptedStt(), turn), seed=5)


def test_scores_and_words_are_the_engines_and_the_script_stays(
    script: list[ScriptedCall], measured: tuple[list[ScriptedCall], audio.Lags]
):
    before = [silence for turn in script[0].turns for silence in turn.silences]
    after = [silence for turn in measured[0][0].turns for silence in turn.silences]
    assert [(s.said, s.length_ms, s.inside) for s in after] == [
        (s.said, s.length_ms, s.inside) for s in before
    ]
    assert all(silence.log_odds == pytest.approx([math.log(9)] * 2) for silence in after)
    assert all(set(silence.heard.split()) <= {"one", "two", "three", "four", "five"} for silence in after)


def test_each_look_hears_the_silence_up_to_it(
    measured: tuple[list[ScriptedCall], audio.Lags], turn: ScriptedTurn
):
    heard = [samples for samples in turn.heard_samples if samples < turn.max_samples]
    firsts, lasts = turn.heard_samples[::2], turn.heard_samples[1::2]
    more = 16 * (SPEC.looks_ms[1] - SPEC.looks_ms[0])
    assert heard
    assert all(
        last - first == more or last == turn.max_samples for first, last in zip(firsts, lasts, strict=True)
    )


def test_voice_activity_reports_the_pauses_late_by_its_own_time(
    measured: tuple[list[ScriptedCall], audio.Lags],
):
    lags = measured[1]
    assert lags.missed == 0
    assert lags.pieces == sum(len(turn.silences) for turn in measured[0][0].turns)
    assert lags.stop_ms
    # At most five quiet windows after the voice; the softness of a voice's end differs between machines.
    assert all(0 < lag_ms <= 160 + audio.WINDOW_MS for lag_ms in lags.stop_ms)


def test_behind_a_sound_that_ends_at_once_the_report_comes_five_windows_late(script: list[ScriptedCall]):
    turn = script[0].turns[0]
    lengths_ms = [700 + 13 * place for place in range(len(turn.silences))]
    sounds = [(0.3 * np.sin(np.arange(length_ms * 16) * 0.4)).astype(np.float32) for length_ms in lengths_ms]
    lags = audio.lags_of(turn, sounds, EnergyVad(), np.random.default_rng(1))
    assert (lags.missed, lags.false_stops, lags.pieces) == (0, 0, len(sounds))
    assert lags.stop_ms
    # The first window may begin with the last of the sound.
    assert all(160 - audio.WINDOW_MS <= lag_ms <= 160 + audio.WINDOW_MS for lag_ms in lags.stop_ms)


def test_what_was_measured_is_kept_beside_its_script(
    script: list[ScriptedCall], measured: tuple[list[ScriptedCall], audio.Lags], tmp_path: Path
):
    audio.save(tmp_path / "calls.json", *measured)
    calls, lags = audio.load(tmp_path / "calls.json", script)
    assert lags == measured[1]
    for one, other in zip(silences(calls), silences(measured[0]), strict=True):
        assert (one.said, one.heard, one.length_ms) == (other.said, other.heard, other.length_ms)
        assert one.log_odds == pytest.approx(other.log_odds, abs=0.01)


def test_what_was_measured_on_another_script_is_refused(
    measured: tuple[list[ScriptedCall], audio.Lags], tmp_path: Path
):
    audio.save(tmp_path / "calls.json", *measured)
    with pytest.raises(ConfigError, match="another script"):
        audio.load(tmp_path / "calls.json", list(generate(SPEC, 6)))


def test_how_a_voice_ends_is_kept_too(
    script: list[ScriptedCall], measured: tuple[list[ScriptedCall], audio.Lags], tmp_path: Path
):
    audio.save(tmp_path / "calls.json", *measured)
    calls, _ = audio.load(tmp_path / "calls.json", script)
    for one, other in zip(silences(calls), silences(measured[0]), strict=True):
        assert one.voice_end is not None
        assert other.voice_end is not None
        assert one.voice_end.tempo is not None
        assert other.voice_end.tempo is not None
        assert asdict(one.voice_end.tempo) == pytest.approx(asdict(other.voice_end.tempo), abs=0.001)
        assert one.voice_end.loudness_db_s == pytest.approx(other.voice_end.loudness_db_s, abs=0.001)


def test_the_same_sentence_is_spoken_alike_whatever_was_said_before():
    first, _ = audio.Speakers().speak("flite", "rms", "i lost my card")
    # Other speakers: the same ones would return their cached audio.
    speakers = audio.Speakers()
    speakers.speak("flite", "rms", "what are your opening hours")
    again, _ = speakers.speak("flite", "rms", "i lost my card")
    assert np.array_equal(first, again)


def test_the_weights_of_a_voice_s_end_are_those_of_the_committed_tuning_calls():
    calls, _ = audio.load(audio.TUNING, list(generate(tuning.SPEC, SEED)))
    fitted = fit(list(samples(calls)), curved=True, voice=True).voice
    shipped = VoiceWeights()
    for name in ("tempo", "movement", "loudness"):
        one, other = getattr(fitted, name), getattr(shipped, name)
        assert one.model_dump() == pytest.approx(other.model_dump(), rel=0.02, abs=0.002)
    tempos = [silence.voice_end.tempo for silence in silences(calls) if silence.voice_end is not None]
    usual = np.mean([tempo.whole for tempo in tempos if tempo is not None])
    assert usual == pytest.approx(USUAL_TEMPO, abs=0.02)


def test_a_drawn_out_word_speaks_for_a_hold_on_the_committed_tuning_calls():
    calls, _ = audio.load(audio.TUNING, list(generate(tuning.SPEC, SEED)))
    known = [
        (row.end, row.signs.tempo) for row in samples(calls) if row.signs and row.signs.tempo is not None
    ]
    ends, holds = ([tempo for end, tempo in known if end is kind] for kind in (True, False))
    assert np.median(holds) < np.quantile(ends, 0.25)


def test_the_committed_tuning_calls_belong_to_the_tuning_script():
    calls, lags = audio.load(audio.TUNING, list(generate(tuning.SPEC, SEED)))
    assert len(list(silences(calls))) == lags.pieces > 1_000


def piece(said: str, *, end: bool = False, inside: bool = False) -> Silence:
    return Silence(None if end else 500, (0.0, 0.0), said, said, inside)


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ((piece("i forgot my", inside=True), piece("pin", end=True)), "i forgot my pin."),
        ((piece("i lost um", inside=True), piece("my card", end=True)), "i lost, um, my card."),
        ((piece("i lost my card and"),), "i lost my card and,"),
        ((piece("are you open on sunday", end=True),), "are you open on sunday?"),
        (
            (piece("are you open uh", inside=True), piece("on sunday", end=True)),
            "are you open, uh, on sunday?",
        ),
        ((piece("um", inside=True), piece("yes", end=True)), "um, yes."),
    ],
)
def test_a_synthesiser_reads_a_comma_at_a_hold_and_a_mark_at_the_end(pieces: tuple[Silence, ...], text: str):
    assert audio.written(pieces) == text
    assert len(text.split()) == sum(len(piece.said.split()) for piece in pieces)


def test_words_are_counted_without_fillers():
    call = ScriptedCall(
        1.0,
        0.6,
        (
            CallTurn("", (Silence(500, (0.0,), "i lost um", "i lost"),)),
            CallTurn("", (Silence(None, (0.0,), "my card is gone", "my cart gone"),)),
        ),
    )
    assert recognised([call]) == {"word_error_rate": round(2 / 6, 4), "last_words_right": 1.0}


def test_new_pauses_leave_words_and_scores(script: list[ScriptedCall]):
    again = with_new_pauses(script[0], SPEC, np.random.default_rng(1))
    before = [silence for turn in script[0].turns for silence in turn.silences]
    after = [silence for turn in again.turns for silence in turn.silences]
    assert [(s.said, s.heard, s.log_odds) for s in after] == [(s.said, s.heard, s.log_odds) for s in before]
    assert [s.length_ms is None for s in after] == [s.length_ms is None for s in before]
    assert [s.length_ms for s in after] != [s.length_ms for s in before]
