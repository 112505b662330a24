"""Turns of low confidence, in whole calls on virtual time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from parley.session_store.events import Kind
from tests.sim.call import OFF, SimulatedCall, silence, simulate, voice

WORDS = ("yes", "what", "is", "the", "limit")
HEARD = " ".join(WORDS)
ASKED_BACK = f"I heard: {HEARD}. Is that right?"
# Five words, then time to hear the question, then one word.
QUESTION = [silence(500), voice(1_000), silence(3_500)]
DOUBTFUL: dict[str, Any] = {"words": WORDS, "ask_back": {"below": 0.5}, "confidence": 0.2}


def received(call: SimulatedCall) -> list[tuple[str, str]]:
    """Return the turns of both sides, as the session records them."""
    kept = {Kind.USER_TURN: "caller", Kind.BOT_TURN: "bot"}
    return [(kept[each.kind], each.payload["text"]) for each in call.events if each.kind in kept]


@pytest.mark.parametrize("speculation", [OFF, {}])
def test_a_doubtful_turn_is_asked_back_and_answered_after_a_yes(
    tmp_path: Path, speculation: Mapping[str, Any]
):
    caller = [*QUESTION, voice(300), silence(2_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], speculation=speculation, **DOUBTFUL)
    assert received(call) == [
        ("caller", HEARD),
        ("bot", ASKED_BACK),
        ("caller", "yes"),
        ("bot", "It is ten."),
    ]
    # The question is answered, not the yes.
    assert (call.model.asked[-1][-1].role, call.model.asked[-1][-1].text) == ("user", HEARD)


def test_the_model_is_not_asked_before_the_caller_has_answered(tmp_path: Path):
    call = simulate(QUESTION, tmp_path, scripts=[("It is ten.",)], speculation=OFF, **DOUBTFUL)
    assert received(call) == [("caller", HEARD), ("bot", ASKED_BACK)]
    assert call.model.asked == []


def test_a_caller_who_says_something_else_is_answered_and_not_asked_back_again(tmp_path: Path):
    caller = [*QUESTION, voice(1_000), silence(2_000)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], speculation=OFF, **DOUBTFUL)
    assert [text for who, text in received(call) if who == "bot"] == [ASKED_BACK, "It is ten."]
    assert [each.role for each in call.model.asked[-1]][-3:] == ["user", "assistant", "user"]


@pytest.mark.parametrize("change", [{"confidence": 0.9}, {"ask_back": None}])
def test_a_turn_that_was_understood_or_that_no_one_doubts_is_answered(tmp_path: Path, change: dict[str, Any]):
    call = simulate(QUESTION, tmp_path, scripts=[("It is ten.",)], **(DOUBTFUL | change))
    assert received(call) == [("caller", HEARD), ("bot", "It is ten.")]


def test_words_over_the_bot_that_were_not_meant_do_not_make_the_next_turn_doubtful(tmp_path: Path):
    caller = [
        *QUESTION,
        voice(1_000),
        silence(1_200),
        voice(300),
        silence(3_000),
        voice(1_000),
        silence(2_500),
    ]
    long = ("One two three four five six seven eight nine ten. " * 3,)
    call = simulate(caller, tmp_path, scripts=[long, ("It is ten.",)], speculation=OFF, **DOUBTFUL)
    bot = [text for who, text in received(call) if who == "bot"]
    assert bot.count(ASKED_BACK) == 2


AGAIN = ("no", "what", "is", "the", "time")


@pytest.mark.parametrize("speculation", [OFF, {}])
def test_a_doubtful_turn_of_which_a_second_recogniser_is_sure_is_answered(
    tmp_path: Path, speculation: Mapping[str, Any]
):
    heard_again = {"heard_again": AGAIN, "heard_again_late_ms": 600}
    scripts = [("It is ten.",)]
    call = simulate(QUESTION, tmp_path, scripts=scripts, speculation=speculation, **(DOUBTFUL | heard_again))
    # The record, the model and the answer have the second recogniser's words alone.
    assert received(call) == [("caller", " ".join(AGAIN)), ("bot", "It is ten.")]
    assert call.model.asked[-1][-1].text == " ".join(AGAIN)


def test_a_second_recogniser_that_is_late_leaves_the_turn_to_be_asked_back(tmp_path: Path):
    late = {"heard_again": AGAIN, "heard_again_late_ms": 4_000}
    caller = [*QUESTION, silence(1_500)]
    call = simulate(caller, tmp_path, scripts=[("It is ten.",)], speculation=OFF, **(DOUBTFUL | late))
    assert received(call) == [("caller", HEARD), ("bot", ASKED_BACK)]
    assert call.model.asked == []
