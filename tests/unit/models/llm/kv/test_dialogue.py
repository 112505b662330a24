"""The client-side record by which a model is asked again."""

from parley.models.llm import Message
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Remembered

SYSTEM = Message("system", "Be kind.")


def user(text: str) -> Message:
    return Message("user", text)


def bot(text: str) -> Message:
    return Message("assistant", text)


FIRST = (SYSTEM, user("one?"))
# Tokens of "It is", " five", " euros".
ANSWER = GenerationResult("asked", "whole", 20, "It is five euros", (5, 10, 16))


def remembered() -> Remembered:
    made = Remembered()
    made.answered(made.ask(FIRST), ANSWER)
    return made


def test_who_has_said_nothing_yet_is_read_in_full():
    assert Remembered().ask(FIRST) == GenerationRequest(FIRST)


def test_what_follows_an_answer_is_appended():
    dialogue = (*FIRST, bot("It is five euros"), user("two?"))
    assert remembered().ask(dialogue) == GenerationRequest(dialogue, "whole", append=(user("two?"),))


def test_an_answer_is_cut_after_the_last_token_that_was_heard_to_its_end():
    dialogue = (*FIRST, bot("It is fi [interrupted]"), user("two?"))
    assert remembered().ask(dialogue) == GenerationRequest(
        dialogue, "asked", 1, "whole", " fi [interrupted]", (user("two?"),)
    )
    dialogue = (*FIRST, bot("It is five"), user("two?"))
    assert remembered().ask(dialogue) == GenerationRequest(dialogue, "asked", 2, "whole", "", (user("two?"),))


def test_a_token_that_ends_no_character_is_heard_with_the_next_one():
    made = Remembered()
    # The second character has two tokens, the third the first half of one.
    made.answered(made.ask(FIRST), GenerationResult("asked", "whole", 20, "aé", (1, 1, 2, 2)))
    for heard, keep in (("a", 1), ("aé", 4), ("aé!", 3)):
        dialogue = (*FIRST, bot(heard), user("two?"))
        asked = made.ask(dialogue)
        assert (asked.keep if asked.condition == "asked" else 4) == keep


def test_an_answer_of_which_nothing_was_heard_is_cut_away():
    for heard in ((), (bot("[interrupted]"),)):
        dialogue = (*FIRST, *heard, user("two?"))
        asked = remembered().ask(dialogue)
        assert (asked.condition, asked.keep) == ("asked", 0)
        assert asked.rest == (heard[0].text if heard else "") and asked.append == (user("two?"),)


def test_the_same_question_once_more_is_answered_anew():
    assert remembered().ask(FIRST) == GenerationRequest(FIRST, "asked")


def test_a_dialogue_that_was_edited_goes_back_to_where_it_was_the_same():
    made = remembered()
    second = (*FIRST, bot("It is five euros"), user("two?"))
    made.answered(made.ask(second), GenerationResult("asked 2", "whole 2", 40, "Yes", (3,)))
    edited = (*FIRST, bot("It is five euros"), user("three?"))
    assert made.ask(edited) == GenerationRequest(edited, "whole", append=(user("three?"),))
    # Everything after it is forgotten with its answer.
    made.answered(made.ask(edited), GenerationResult("asked 3", "whole 3", 40, "No", (2,)))
    assert made.ask(second).condition == "whole"


def test_another_beginning_is_read_in_full():
    other = (Message("system", "Be brief."), user("one?"), bot("It is five euros"), user("two?"))
    assert remembered().ask(other) == GenerationRequest(other)


def test_a_context_that_is_gone_is_forgotten():
    made = remembered()
    made.forget()
    assert made.newest is None and made.ask(FIRST).condition is None


def test_only_so_much_is_remembered():
    made = Remembered(most_turns=2)
    dialogue: tuple[Message, ...] = (SYSTEM,)
    for number in range(4):
        dialogue = (*dialogue, user(f"{number}?"))
        made.answered(
            made.ask(dialogue), GenerationResult(f"asked {number}", f"whole {number}", number, "Yes", (3,))
        )
        dialogue = (*dialogue, bot("Yes"))
    assert made.ask(dialogue[:2]).condition is None
    assert made.ask(dialogue[:6]).condition == "asked 2"
