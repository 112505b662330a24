"""Sounds over the bot's voice, and the reactions of policies."""

import pytest

from parley.evals.turns.overlaps import (
    Overlap,
    OverlapSpec,
    Sound,
    VoiceTimer,
    cut_after_ms,
    generate,
    judge,
)
from parley.turn_taking.barge_in.barge_in import BargeIn

SPEC = OverlapSpec(of_each=40)


def sound(kind: Sound, length_ms: int, *words: str) -> Overlap:
    return Overlap(kind, 2_000, length_ms, tuple((word, 0.9) for word in words), 0.0, 300)


def test_the_same_seed_gives_the_same_sounds():
    assert generate(SPEC, 3) == generate(SPEC, 3)
    assert generate(SPEC, 3) != generate(SPEC, 4)


def test_every_kind_is_there_as_often():
    kinds = [overlap.sound for overlap in generate(SPEC, 3)]
    assert {kind: kinds.count(kind) for kind in Sound} == dict.fromkeys(Sound, SPEC.of_each)


@pytest.mark.parametrize(("confirm_ms", "after_ms"), [(0, 128), (300, 300), (700, None), (None, None)])
def test_a_voice_timer_yields_to_so_much_voice(confirm_ms: int | None, after_ms: int | None):
    assert cut_after_ms(VoiceTimer(confirm_ms), sound(Sound.BACKCHANNEL, 500, "mhm"), SPEC) == after_ms


def test_a_sound_that_voice_activity_never_reports_cuts_nothing():
    assert cut_after_ms(VoiceTimer(0), sound(Sound.COUGH, 100), SPEC) is None


def test_words_cut_before_duration_does():
    talk = sound(Sound.INTERRUPTION, 2_000, "how", "much", "is", "it", "please")
    after_ms = cut_after_ms(BargeIn(), talk, SPEC)
    assert after_ms is not None
    assert after_ms <= 850


def test_a_hum_does_not_cut():
    assert cut_after_ms(BargeIn(), sound(Sound.BACKCHANNEL, 400, "mhm"), SPEC) is None


def test_the_rows_bracket_the_product():
    overlaps = generate(SPEC, 3)
    rows = {name: judge(name, overlaps, SPEC) for name in ("never", "voice-0", "barge-in")}
    assert rows["never"].recall == 0
    assert rows["never"].self_interruptions == 0
    assert rows["voice-0"].recall == 1
    assert rows["voice-0"].yields["backchannel"] == 1
    ours = rows["barge-in"]
    assert ours.recall > 0.9
    assert ours.yields["backchannel"] < 0.2
    assert ours.self_interruptions < rows["voice-0"].self_interruptions
