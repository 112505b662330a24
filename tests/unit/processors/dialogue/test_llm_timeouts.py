import pytest

from parley.core.tuning import tuned
from parley.processors.dialogue.llm_timeouts import (
    FailureReason,
    GuardSettings,
    GuardTuning,
    LlmTimeouts,
    SaidSoFar,
    SentenceCutter,
    split_sentences,
    words_of,
)

LIMITS = GuardTuning(
    first_token_ms=1000, token_gap_ms=1500, silence_budget_ms=1400, silent_gap_ms=400, tool_call_ms=2500
)


def watch(*, tools: bool = False, signs: bool = False) -> LlmTimeouts:
    return LlmTimeouts(LIMITS, asked_ms=100, tools=tools, signs=signs)


@pytest.mark.parametrize(
    ("first_token_ms", "limits_ms"), [(500, (1_500, 1_400, 400)), (5_000, (7_500, 7_000, 2_000))]
)
def test_a_slow_model_may_be_slow_between_its_pieces_too(
    first_token_ms: int, limits_ms: tuple[int, int, int]
):
    limits = tuned(GuardTuning, GuardSettings(first_token_ms=first_token_ms))
    assert (limits.token_gap_ms, limits.silence_budget_ms, limits.silent_gap_ms) == limits_ms


def test_the_first_token_has_a_deadline_of_its_own():
    assert watch().deadline_ms() == 1100
    assert watch().reason() is FailureReason.NO_FIRST_TOKEN


def test_while_nothing_is_heard_the_silence_budget_counts():
    w = watch()
    w.on_text(300, speakable=False)
    assert w.deadline_ms() == 1500
    assert w.reason() is FailureReason.STALLED


def test_a_late_first_token_gets_the_short_gap():
    w = watch()
    w.on_text(1050, speakable=False)
    assert w.deadline_ms() == 1500
    w.on_text(1450, speakable=False)
    assert w.deadline_ms() == 1850


def test_once_a_sentence_can_be_heard_the_long_gap_counts():
    w = watch()
    w.on_text(300, speakable=True)
    w.on_text(2000, speakable=True)
    assert w.deadline_ms() == 3500


def test_silence_after_speech_counts_from_the_last_sound():
    w = watch()
    w.on_text(300, speakable=True)
    w.on_bot_started()
    w.on_bot_stopped(1000)
    assert w.deadline_ms() == 1800
    w.on_text(3000, speakable=True)
    assert w.deadline_ms() == 3400


def test_a_tool_call_has_its_own_deadline():
    assert watch(tools=True).deadline_ms() == 2600
    assert watch(tools=True, signs=True).deadline_ms() == 1100
    w = watch(tools=True, signs=True)
    w.on_answer_begun(900)
    assert w.deadline_ms() == 3400
    w.pause()
    assert w.deadline_ms() is None


def test_a_sign_of_an_answer_without_tools_changes_nothing():
    w = watch(signs=True)
    w.on_answer_begun(900)
    assert w.deadline_ms() == 1100


@pytest.mark.parametrize(
    ("text", "sentences", "rest"),
    [
        ("We open at 9.30 today. Come", ["We open at 9.30 today."], "Come"),
        ('He said "no." Then left.', ['He said "no."', "Then left."], ""),
        ("你好。再见", ["你好。"], "再见"),
        ("", [], ""),
    ],
)
def test_sentences_are_split_at_their_marks(text: str, sentences: list[str], rest: str):
    assert split_sentences(text) == (sentences, rest)


def test_text_is_released_word_by_word_and_loses_nothing():
    said = SaidSoFar()
    pieces = ["We", " op", "en at", " 9", ".30", ", then", " close.", " Bye"]
    released = [said.add(piece) for piece in pieces]
    assert "".join(released) + said.flush() == "".join(pieces)
    assert not any(piece.endswith(" op") for piece in released)


def test_a_sentence_is_released_with_its_mark():
    said = SaidSoFar()
    assert said.add("Yes.") == "Yes."
    assert not said.speakable
    said.add(" And more ")
    assert said.speakable


def test_text_without_spaces_is_released_in_the_end():
    said = SaidSoFar()
    assert said.add("字" * 41) == "字" * 41


@pytest.mark.parametrize(
    ("pieces", "bridge"),
    [
        ([], ""),
        (["  "], ""),
        (["We op"], ". Sorry. "),
        (["We, th"], " Sorry. "),
        (["We open."], " "),
        (["We open. At n"], ". Sorry. "),
    ],
)
def test_the_bridge_fits_what_was_said(pieces: list[str], bridge: str):
    said = SaidSoFar()
    for piece in pieces:
        said.add(piece)
    assert said.bridge("Sorry.") == bridge


def test_a_sentence_counts_as_said_whatever_its_case_and_marks():
    said = SaidSoFar()
    said.add("Well, we don't open at nine. ")
    assert said.said("We don’t open at NINE!")
    assert not said.said("We open at nine.")
    assert not said.said("...")
    assert words_of("It's 9.30!") == ["its", "9", "30"]


def test_streamed_text_is_cut_into_sentences():
    cutter = SentenceCutter()
    assert cutter.add("We open at 9") == []
    assert cutter.add(".30. We") == ["We open at 9.30."]
    assert cutter.add(' close at "five." ') == ['We close at "five."']
    assert cutter.add("Bye") == []
    assert cutter.flush() == "Bye"
    assert cutter.flush() == ""
