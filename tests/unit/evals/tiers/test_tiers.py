"""The evaluation of tiers sees what is lost and what is repeated."""

from typing import Any

from parley.evals.tiers.__main__ import figures, passed
from parley.evals.tiers.model_peer import NOTHING_LEFT, SLOTS, answer, known_in, question
from parley.evals.tiers.script import Place, draw
from parley.evals.tiers.walk import Outcome, repeated


def said(text: str) -> dict[str, Any]:
    return {"kind": "user_turn", "payload": {"text": text}}


def replied(text: str) -> dict[str, Any]:
    return {"kind": "bot_turn", "payload": {"text": text}}


def test_the_model_asks_for_the_first_fact_that_its_prompt_lacks() -> None:
    first, second, *_ = SLOTS
    assert answer([{"role": "user", "content": "Hello."}]) == question(first)
    assert answer([{"role": "user", "content": f"My {first} is amber."}]) == question(second)
    # Its own words, or those of a human, are no fact of the person.
    assert answer([{"role": "assistant", "content": f"my {first} is amber"}]) == question(first)
    noted = "\n".join(f"- {slot}: amber" for slot in SLOTS)
    assert answer([{"role": "user", "content": noted}]) == NOTHING_LEFT


def test_the_model_says_what_its_prompt_holds_and_nothing_else() -> None:
    first, second, *_ = SLOTS
    messages = [
        {"role": "user", "content": f"My {first} is amber."},
        {"role": "user", "content": f"My {first} is birch. My {second} is cedar.\nWhat do you know?"},
    ]
    assert known_in(answer(messages)) == {first: "birch", second: "cedar"}


def test_a_question_counts_as_repeated_once_its_fact_was_given() -> None:
    slot = SLOTS[0]
    before = [replied(question(slot)), replied(question(slot)), said(f"My {slot} is amber.")]
    assert repeated(before) == []
    assert repeated([*before, said("Hello?"), replied(question(slot))]) == [slot]


def test_every_leg_is_at_another_tier_than_the_one_before_and_all_changes_are_drawn() -> None:
    changes: set[tuple[Place, Place]] = set()
    for number in range(100):
        legs = draw(1, number)
        assert len(legs) == len(SLOTS)
        changes |= {(one.place, other.place) for one, other in zip(legs, legs[1:], strict=False)}
    assert len(changes) == len(Place) * (len(Place) - 1)
    assert draw(1, 3) == draw(1, 3) != draw(2, 3)


def test_a_run_passes_only_without_losses_repetitions_and_faults() -> None:
    assert passed(figures([Outcome(changes=3)], seed=1))
    for outcome in (Outcome(lost=["city"]), Outcome(repeated=["city"]), Outcome(fault="no answer")):
        assert not passed(figures([Outcome(), outcome], seed=1))
