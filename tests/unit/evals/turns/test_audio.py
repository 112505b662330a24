"""Calls through engines: a real voice, everything else scripted."""

import math

import numpy as np
import pytest

from parley.evals.turns import audio
from parley.evals.turns.callers import CallSpec, ScriptedCall, Silence, with_new_pauses
from parley.evals.turns.callers import ScriptedTurn as CallTurn
from tests.fakes.stt import ScriptedStt
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad

SPEC = CallSpec(callers=1, turns=1)
SAID = CallTurn(
    "Hello.",
    (
        Silence(700, (), "what are your", "", inside=True),
        Silence(450, (), "opening hours", "", inside=True),
        Silence(None, (), "on sunday", ""),
    ),
)


@pytest.fixture(scope="module")
def model() -> ScriptedTurn:
    return ScriptedTurn((0.9,))


@pytest.fixture(scope="module")
def measured(model: ScriptedTurn) -> CallTurn:
    speakers, stt = audio.Speakers(), ScriptedStt()
    sounds = [audio.trimmed(speakers.speak("flite", "rms", piece.said)[0]) for piece in SAID.silences]
    engines = audio.Engines(EnergyVad(), stt, model)
    stream = stt.open_stream()
    return audio.measured_turn(SAID, sounds, SPEC, engines, stream, np.random.default_rng(5))


def test_scores_and_words_are_the_engines_and_the_script_stays(measured: CallTurn):
    assert [(s.said, s.length_ms, s.inside) for s in measured.silences] == [
        (s.said, s.length_ms, s.inside) for s in SAID.silences
    ]
    assert all(silence.log_odds == pytest.approx([math.log(9)] * 2) for silence in measured.silences)
    assert all(set(s.heard.split()) <= {"one", "two", "three", "four", "five"} for s in measured.silences)
    assert all(silence.voice_end and silence.voice_end.tempo for silence in measured.silences)


@pytest.mark.usefixtures("measured")
def test_each_look_hears_the_silence_up_to_it(model: ScriptedTurn):
    firsts, lasts = model.heard_samples[::2], model.heard_samples[1::2]
    more = 16 * (SPEC.looks_ms[1] - SPEC.looks_ms[0])
    assert len(firsts) == len(SAID.silences)
    assert all(
        last - first == more or last == model.max_samples for first, last in zip(firsts, lasts, strict=True)
    )


def test_the_same_sentence_is_spoken_alike_whatever_was_said_before():
    first, _ = audio.Speakers().speak("flite", "rms", "i lost my card")
    # Other speakers: the same ones would return their cached audio.
    speakers = audio.Speakers()
    speakers.speak("flite", "rms", "what are your opening hours")
    again, _ = speakers.speak("flite", "rms", "i lost my card")
    assert np.array_equal(first, again)


def test_new_pauses_leave_words_and_scores(measured: CallTurn):
    again = with_new_pauses(ScriptedCall(1.0, 0.6, (measured,)), SPEC, np.random.default_rng(1))
    before, after = measured.silences, again.turns[0].silences
    assert [(s.said, s.heard, s.log_odds) for s in after] == [(s.said, s.heard, s.log_odds) for s in before]
    assert [s.length_ms is None for s in after] == [s.length_ms is None for s in before]
    assert [s.length_ms for s in after] != [s.length_ms for s in before]
