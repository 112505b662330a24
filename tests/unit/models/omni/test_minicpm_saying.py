"""Units of MiniCPM-o: audio is neither lost nor overlaps, and invalid audio is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.errors import ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import UnitResult
from parley.models.omni.minicpm_o.settings import (
    ContextWindowSettings,
    SamplingSettings,
    SessionSettings,
    checked_voice,
    context_units,
    merged,
    with_history,
)
from parley.models.omni.minicpm_o.word_aligner import TurnAssembler, UnitOutput

UNIT = 24_000


def speech(ms: int, *, pad_ms: int = 0, level: float = 0.5) -> np.ndarray:
    return np.concatenate((np.zeros(pad_ms * 24, np.float32), np.full(ms * 24, level, np.float32)))


def spoken(audio: np.ndarray, *, end: bool = False, text: str = " word") -> UnitOutput:
    return UnitOutput(is_listen=False, text=text, audio=audio, end_of_turn=end)


LISTENS = UnitOutput(is_listen=True, text="", audio=np.zeros(UNIT, np.float32), end_of_turn=False)


def saying() -> TurnAssembler:
    return TurnAssembler(1_000, engine="test")


def results(*units: UnitOutput) -> list[UnitResult]:
    turns = saying()
    return [turns.result(unit, forced=False) for unit in units]


def test_a_unit_that_listens_carries_no_sound() -> None:
    [result] = results(LISTENS)
    assert result.vote is Vote.LISTEN and not len(result.audio) and not result.end_of_turn


def test_silence_before_the_first_words_of_a_turn_stays() -> None:
    [result] = results(spoken(speech(600, pad_ms=400)))
    assert len(result.audio) == UNIT and not result.audio[: 400 * 24].any()


def test_what_does_not_fit_a_unit_is_said_in_the_next_one_and_the_turn_ends_with_it() -> None:
    first, second, third = results(spoken(speech(1_040)), spoken(speech(1_200), end=True), LISTENS)
    assert [len(result.audio) for result in (first, second, third)] == [UNIT, UNIT, 240 * 24]
    assert [result.end_of_turn for result in (first, second, third)] == [False, False, True]
    assert third.vote is Vote.SPEAK


def test_silence_in_front_goes_where_something_waits_to_be_said() -> None:
    _, second, third = results(spoken(speech(1_040)), spoken(speech(900, pad_ms=100), end=True), LISTENS)
    # 40 ms that waited, 60 of silence, 900 of speech.
    assert second.audio[: 40 * 24].all() and not second.audio[40 * 24 : 100 * 24].any()
    assert second.end_of_turn and third.vote is Vote.LISTEN


def test_who_must_listen_gives_up_what_is_said_and_what_waits() -> None:
    turns = saying()
    turns.result(spoken(speech(1_300)), forced=False)
    result = turns.result(LISTENS, forced=True)
    assert result.vote is Vote.YIELD and result.end_of_turn and not len(result.audio)
    assert turns.result(LISTENS, forced=False).vote is Vote.LISTEN
    assert turns.result(LISTENS, forced=True).vote is Vote.LISTEN


def test_a_model_that_speaks_though_it_must_listen_is_not_heard() -> None:
    turns = saying()
    result = turns.result(spoken(speech(1_000)), forced=True)
    assert result.vote is Vote.LISTEN and not len(result.audio) and not result.text


def test_a_turn_that_is_left_open_ends_when_the_model_listens() -> None:
    turns = saying()
    turns.result(spoken(speech(1_000)), forced=False)
    result = turns.result(LISTENS, forced=False)
    assert result.vote is Vote.LISTEN and result.end_of_turn and not turns.is_open


@pytest.mark.parametrize(
    "audio",
    [
        np.full(UNIT, np.nan, np.float32),
        np.zeros((2, UNIT), np.float32),
        np.zeros(UNIT, np.float64),
        np.zeros(2 * UNIT + 1, np.float32),
    ],
)
def test_what_is_no_audio_is_the_engines_failure(audio: np.ndarray) -> None:
    with pytest.raises(EngineError):
        saying().result(spoken(audio), forced=False)


def test_a_model_that_says_more_than_can_be_heard_fails() -> None:
    turns = saying()
    with pytest.raises(EngineError, match="more speech is queued"):
        for _ in range(20):
            turns.result(spoken(speech(2_000)), forced=False)


def test_too_loud_is_as_loud_as_can_be() -> None:
    [result] = results(spoken(speech(1_000, level=1.5)))
    assert result.audio.max() == 1.0


@given(st.lists(st.tuples(st.integers(1, 1_300), st.booleans()), min_size=1, max_size=20))
def test_nothing_that_was_said_is_lost(units: list[tuple[int, bool]]) -> None:
    turns = saying()
    heard, made = 0, sum(ms for ms, _ in units) * 24
    for ms, end in units:
        result = turns.result(spoken(speech(ms), end=end), forced=False)
        assert len(result.audio) <= UNIT
        heard += len(result.audio)
    for _ in range(10):
        heard += len(turns.result(LISTENS, forced=False).audio)
    assert heard == made and not turns.is_open


def test_a_context_is_full_sooner_with_pictures_and_with_tiles() -> None:
    hears = context_units(8_192, max_slice_nums=1, frames_per_unit=0)
    sees = context_units(8_192, max_slice_nums=1, frames_per_unit=1)
    assert hears == (8_192 - 512) // 32 and sees == (8_192 - 512) // (32 + 66)
    assert context_units(8_192, max_slice_nums=4, frames_per_unit=1) < sees
    assert context_units(1_024, max_slice_nums=9, frames_per_unit=8) == 1


def test_settings_of_a_conversation_override_those_of_the_deployment() -> None:
    settings = merged(SessionSettings(temperature=0.5, top_k=3), {"top_k": 9}, engine="test")
    assert (settings.temperature, settings.top_k) == (0.5, 9)
    # Unset fields are known as such: a model without such a setting is not refused.
    assert settings.model_fields_set == {"temperature", "top_k"}
    for wrong in ({"chunk_ms": 500}, {"top_p": 3.0}):
        with pytest.raises(ConfigError):
            merged(SamplingSettings(), wrong, engine="test")


def test_a_window_has_two_different_edges() -> None:
    with pytest.raises(ValueError, match="must be below"):
        ContextWindowSettings(basic_window_high_tokens=500, basic_window_low_tokens=500)


def test_what_was_said_before_stands_in_the_prompt_the_newest_of_it() -> None:
    history = (("user", "a" * 100), ("assistant", "Of course."))
    prompt = with_history("Be kind.", history, 30)
    assert prompt.startswith("Be kind.\n\nprevious:\n") and prompt.endswith("assistant: Of course.")
    assert len(prompt) == len("Be kind.\n\nprevious:\n") + 30
    assert with_history("Be kind.", (), 30) == with_history("Be kind.", history, 0) == "Be kind."
    assert with_history("", (), 30) == "Streaming Omni Conversation."


@pytest.mark.parametrize(
    "audio",
    [
        np.zeros(1_000, np.float32),
        np.zeros(61 * 16_000, np.float32),
        np.zeros(16_000),
        np.zeros((16_000, 1), np.float32),
        np.full(16_000, np.inf, np.float32),
    ],
)
def test_what_is_no_voice_is_refused(audio: np.ndarray) -> None:
    with pytest.raises(ConfigError):
        checked_voice(audio)
