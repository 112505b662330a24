"""Calls composed of recordings: positions and lengths of pauses, and true ends of turns."""

import json
from pathlib import Path

import numpy as np
import pytest

from parley.evals.human.alignment import Aligner
from parley.evals.human.conditions import CLEAN, CONDITIONS
from parley.evals.human.conversations import Composer
from parley.evals.human.export import calls, write
from parley.evals.human.hesitations import (
    Boundary,
    HesitationLaw,
    PausePlace,
    boundaries,
    choose,
    compose,
    room_tone,
    speech_span,
)
from parley.evals.human.recordings import RecordedPause, decode_wav, edges_of
from parley.evals.human.split import TuningSet
from tests.recorded_speech import clip


def test_words_of_a_recording_are_found_in_order():
    one = clip()
    words = Aligner().align(one)
    assert words is not None
    assert [word.written for word in words] == one.text.split()
    assert all(one_.end <= other.first for one_, other in zip(words, words[1:], strict=False))


def test_a_click_before_the_first_word_is_not_speech():
    # The recording begins with the last 40 ms of the sentence before.
    one = clip()
    first, end = speech_span(one, Aligner().align(one) or ())
    assert edges_of(one.samples, one.rate_hz)[0] < 0.04 * one.rate_hz
    assert 0.1 * one.rate_hz < first < 0.3 * one.rate_hz
    assert 2.6 * one.rate_hz < end < 2.9 * one.rate_hz


@pytest.mark.parametrize("text", ["", "he was not an ill disposed grommelspatz", "un autre texte à lire"])
def test_a_text_that_cannot_be_aligned_gives_no_words(text: str):
    assert Aligner().align(clip(text=text)) is None


def test_a_text_that_is_not_what_is_heard_gives_no_words():
    assert Aligner().align(clip(text="please press one to mute or unlock the conference " * 12)) is None


def test_places_are_junctures_and_function_words():
    one = clip(text="he was not, an ill disposed young man")
    words = Aligner().align(one)
    assert words is not None
    found = boundaries(one, words)
    assert {place.words: place.place for place in found} == {
        # After "he" there are less than 250 ms of speech.
        2: PausePlace.PHRASE,
        3: PausePlace.CLAUSE,
        4: PausePlace.PHRASE,
    }
    # Each cut lies between its words, or very near to the gap.
    for place in found:
        before, after = words[place.words - 1], words[place.words]
        assert before.end - 0.05 * one.rate_hz <= place.at <= after.first + 0.05 * one.rate_hz


def test_a_cut_turn_has_the_pauses_that_were_drawn_and_all_of_its_speech():
    one = clip()
    words = Aligner().align(one) or ()
    # After the third word the recording has a silence of its own.
    cuts = [place for place in boundaries(one, words) if place.words in (2, 4)]
    turn = compose(one, cuts, (300, 900), np.random.default_rng(1), words)
    placed = [pause for pause in turn.pauses if pause.place is not None]
    assert [(pause.end - pause.first) * 1000 // turn.rate_hz for pause in placed] == [300, 900]
    assert [pause.words for pause in placed] == [cut.words for cut in cuts]
    first, end = speech_span(one, words)
    speech = len(turn.samples) - sum(pause.end - pause.first for pause in placed)
    assert speech == end - first
    # After the last pause the recording continues where it was cut.
    last = placed[-1].end
    fade = 8 * one.rate_hz // 1000
    assert (turn.samples[last + fade :] == one.samples[cuts[-1].at + fade : end]).all()


def test_a_pause_of_the_recording_is_stretched_and_not_doubled():
    one = clip()
    words = Aligner().align(one) or ()
    first, _ = speech_span(one, words)
    own = (RecordedPause(first + 8_000, first + 11_200),)
    changed = type(one)(
        one.id, one.samples, one.rate_hz, one.text, one.speaker, one.source, one.language, own
    )
    cut = Boundary(first + 9_000, PausePlace.PHRASE, 3)
    longer = compose(changed, (cut,), (700,), np.random.default_rng(1), words)
    (pause,) = longer.pauses
    assert (pause.first, pause.end) == (8_000, 8_000 + 11_200)
    shorter = compose(changed, (cut,), (100,), np.random.default_rng(1), words)
    assert [pause.end - pause.first for pause in shorter.pauses] == [3_200]


def test_room_tone_is_as_loud_as_the_quietest_moment():
    one = clip()
    tone = room_tone(one, 16_000, np.random.default_rng(1))
    windows = one.samples[: len(one.samples) // 960 * 960].reshape(-1, 960)
    quietest = np.sqrt(np.mean(windows**2, axis=1)).min()
    assert np.sqrt(np.mean(tone**2)) <= quietest * 1.01


def test_lengths_follow_the_published_law():
    law, rng = HesitationLaw(spread=0.0), np.random.default_rng(3)
    drawn = [length for _ in range(4_000) for length in law.lengths_ms(rng)]
    assert len(drawn) / 4_000 == pytest.approx(705 / 400, rel=0.05)
    for longer_ms, share in ((300, 0.556), (600, 0.217), (1_000, 0.10), (1_600, 0.05)):
        assert np.mean(np.array(drawn) > longer_ms) == pytest.approx(share, abs=0.02)
    assert max(HesitationLaw(longest_ms=1_200, spread=0.5).lengths_ms(rng) or [0]) <= 1_200


def test_junctures_are_preferred_as_often_as_people_pause_there():
    places = [
        *(Boundary(at * 10_000, PausePlace.CLAUSE, at) for at in range(1, 4)),
        *(Boundary(at * 10_000, PausePlace.PHRASE, at) for at in range(10, 20)),
    ]
    rng = np.random.default_rng(5)
    chosen = [choose(places, 1, 16_000, rng)[0].place for _ in range(2_000)]
    assert chosen.count(PausePlace.CLAUSE) / len(chosen) == pytest.approx(0.55, abs=0.03)
    assert choose((), 3, 16_000, rng) == ()


def call(condition: str, seed: int = 1):
    one = clip()
    composer = Composer(TuningSet([one]), HesitationLaw(per_turn=4.0))
    rng = np.random.default_rng(seed)
    return composer.conversation([one, one], rng, condition=CONDITIONS[condition], answer_ms=500)


def test_turns_of_a_call_are_where_they_are_said_to_be():
    composed = call("clean")
    assert composed.condition == CLEAN.name
    assert [turn.text for turn in composed.turns] == [clip().text] * 2
    loud = np.abs(composed.samples) > 0.05
    for turn in composed.turns:
        assert loud[turn.first : turn.end].any()
        assert not loud[turn.end : turn.end + 8_000].any()
        for pause in turn.pauses:
            assert turn.first < pause.first < pause.end < turn.end
            if pause.place is not None:
                assert not loud[pause.first : pause.end].any()


def test_the_same_seed_composes_the_same_call():
    assert (call("clean").samples == call("clean").samples).all()
    assert len(call("clean").samples) != len(call("clean", seed=2).samples)


@pytest.mark.parametrize("condition", ["phone", "phone-loss-3", "pink-10", "fan-10"])
def test_what_lies_between_moves_no_event(condition: str):
    clean, heard = call("clean"), call(condition)
    assert [(turn.first, turn.end) for turn in heard.turns] == [(t.first, t.end) for t in clean.turns]
    assert len(heard.samples) == len(clean.samples)
    # The correlation is greatest without any shift.
    size = 2 * len(clean.samples)
    product = np.fft.rfft(heard.samples, size) * np.conj(np.fft.rfft(clean.samples, size))
    assert int(np.argmax(np.fft.irfft(product))) == 0


def test_a_caller_is_one_speaker():
    one = clip()
    other = type(one)(
        "x", one.samples * 0.5, one.rate_hz, "", "moonshine-clone-test", "readings", "en", one.pauses
    )
    with pytest.raises(ValueError, match="one speaker"):
        Composer(TuningSet([one, other])).conversation([one, other], np.random.default_rng(1))


def test_a_composed_call_is_written_with_its_events(tmp_path: Path):
    (composed,) = calls(TuningSet([clip()]), CLEAN, count=1, turns=1, seed=1)
    write(composed, tmp_path / "call")
    samples, rate_hz = decode_wav((tmp_path / "call.wav").read_bytes())
    written = json.loads((tmp_path / "call.json").read_text())
    (turn,) = written["turns"]
    assert (rate_hz, written["rate_hz"], written["speaker"]) == (16_000, 16_000, "librivox-austen")
    assert np.abs(samples - composed.samples).max() < 1e-4
    assert turn["text"] == clip().text
    assert 0 < turn["first"] < turn["end"] < len(samples)
    assert all(turn["first"] < pause["first"] < pause["end"] < turn["end"] for pause in turn["pauses"])
