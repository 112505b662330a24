"""Detection of speech in the output of a model that is never silent."""

import numpy as np
import pytest

from parley.models.omni.moshi.speech import SILENT_DBFS, SpeechGate, level_dbfs

LOUD, QUIET = -20.0, -80.0


@pytest.fixture
def gate() -> SpeechGate:
    return SpeechGate(speech_dbfs=-50.0, hangover_units=3)


def test_silence_is_not_said(gate: SpeechGate) -> None:
    assert [gate.on_unit(is_word=False, dbfs=QUIET) for _ in range(5)] == [(False, False)] * 5


@pytest.mark.parametrize(("is_word", "dbfs"), [(True, QUIET), (False, LOUD)])
def test_words_and_sound_are_each_speech(gate: SpeechGate, is_word: bool, dbfs: float) -> None:
    assert gate.on_unit(is_word=is_word, dbfs=dbfs) == (True, False)
    assert gate.speaks


def test_speech_ends_with_the_last_unit_of_the_hangover(gate: SpeechGate) -> None:
    gate.on_unit(is_word=True, dbfs=LOUD)
    found = [gate.on_unit(is_word=False, dbfs=QUIET) for _ in range(4)]
    assert found == [(True, False), (True, False), (True, True), (False, False)]


def test_a_word_in_the_hangover_begins_it_anew(gate: SpeechGate) -> None:
    for is_word in (True, False, False, True, False, False):
        assert gate.on_unit(is_word=is_word, dbfs=QUIET) == (True, False)
    assert gate.on_unit(is_word=False, dbfs=QUIET) == (True, True)


def test_who_is_silenced_has_no_hangover(gate: SpeechGate) -> None:
    gate.on_unit(is_word=True, dbfs=LOUD)
    assert gate.silence() and not gate.silence()
    assert gate.on_unit(is_word=False, dbfs=QUIET) == (False, False)


def test_levels_are_of_full_scale() -> None:
    assert level_dbfs(np.zeros(0, np.float32)) == level_dbfs(np.zeros(9, np.float32)) == SILENT_DBFS
    assert level_dbfs(np.full(1_920, 0.1, np.float32)) == pytest.approx(-20.0, abs=1e-4)
