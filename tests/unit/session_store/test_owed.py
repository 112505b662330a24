"""Rest of a reply, or the answer, that a call owed its caller when it broke off."""

import pytest

from parley.session_store.events import Kind
from parley.session_store.owed import OwedWords, is_begun, owed_of
from tests.fakes.timeline import Timeline


def heard(line: Timeline, text: str, rest: str | None, **more: object) -> None:
    payload = {"reply_id": "a", "text": text, "rest": rest, **more}
    line.add(Kind.HEARD, payload, source="bot")


def test_nothing_is_owed_of_a_reply_that_was_heard_to_its_end() -> None:
    line = Timeline()
    line.said("When do you open?")
    heard(line, "At nine.", "Every day.")
    line.replied("At nine. Every day.", reply_id="a")
    assert owed_of(line.events) == OwedWords()


def test_the_rest_of_a_reply_is_owed_from_its_last_heard_clause() -> None:
    line = Timeline()
    line.said("When do you open?")
    heard(line, "At nine.", "Every day. Also on Sundays.")
    heard(line, "At nine. Every day.", "Also on Sundays.")
    assert owed_of(line.events) == OwedWords("Also on Sundays.")


def test_the_rest_is_that_of_the_newest_reply() -> None:
    line = Timeline()
    line.said("When do you open?")
    heard(line, "At nine.", "Every day. Also on Sundays.")
    line.replied("Sorry. Every day.", unheard="Also on Sundays.", reply_id="b")
    assert owed_of(line.events) == OwedWords("Also on Sundays.")


def test_an_answer_is_owed_to_a_turn_without_one() -> None:
    line = Timeline()
    line.replied("Hello.")
    line.said("When do you open?")
    assert owed_of(line.events) == OwedWords(answer=True)
    # The phrase over a new stream is not the answer.
    line.add(Kind.BOT_TURN, {"reply_id": "p", "text": "Sorry.", "by": "deployment"}, source="bot")
    assert owed_of(line.events) == OwedWords(answer=True)


def test_an_answer_that_the_model_was_still_writing_is_asked_for_again() -> None:
    line = Timeline()
    line.said("When do you open?")
    heard(line, "At nine.", None)
    assert owed_of(line.events) == OwedWords(answer=True)


def test_an_answer_that_broke_off_while_its_server_lived_is_asked_for_again_if_it_was_not_written() -> None:
    line = Timeline()
    line.said("When do you open?")
    payload = {"reply_id": "a", "text": "At nine.", "truncated": True, "unheard": "Every"}
    line.add(Kind.BOT_TURN, {**payload, "unwritten": True}, source="bot")
    assert owed_of(line.events) == OwedWords(answer=True)
    line.add(Kind.BOT_TURN, {**payload, "reply_id": "b", "unheard": "Every day."}, source="bot")
    assert owed_of(line.events) == OwedWords("Every day.")


def test_a_call_has_begun_with_the_first_words_that_are_not_of_the_deployment() -> None:
    line = Timeline()
    line.add(Kind.BOT_TURN, {"reply_id": "p", "text": "This is recorded.", "by": "deployment"}, source="bot")
    line.said("typed", transport="text")
    assert not is_begun(line.events)
    heard(line, "Hello.", "I am Ada.")
    assert is_begun(line.events)


def test_an_answer_is_owed_to_the_result_of_a_tool() -> None:
    line = Timeline()
    line.said("Where is my card?")
    line.replied("One moment.")
    line.called("c")
    assert owed_of(line.events) == OwedWords(answer=True)


@pytest.mark.parametrize("rest", ["This may take a moment.", ""])
def test_the_result_of_a_tool_is_owed_after_the_words_that_announce_it(rest: str) -> None:
    line = Timeline()
    line.said("Where is my card?")
    heard(line, "Let me look.", rest)
    line.called("c")
    assert owed_of(line.events) == OwedWords(rest, answer=True)


def test_what_was_typed_has_its_own_answer() -> None:
    line = Timeline()
    line.said("When do you open?")
    line.replied("At nine. Every day.")
    line.said("And on Sundays?", transport="text")
    assert owed_of(line.events) == OwedWords()


@pytest.mark.parametrize("by", [None, "human"])
def test_the_rest_of_a_greeting_or_of_a_humans_words_is_owed(by: str | None) -> None:
    line = Timeline()
    heard(line, "Hello.", "I am Ada.", **({} if by is None else {"by": by}))
    assert owed_of(line.events) == OwedWords("I am Ada.", by_human=by is not None)


def test_nothing_is_owed_before_the_first_word() -> None:
    assert owed_of([]) == OwedWords()
