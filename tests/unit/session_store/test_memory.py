import random
from functools import partial

from parley.language import find_language
from parley.session_store.events import Kind
from parley.session_store.memory import SessionState, current_events, fold_state, learn, state_payload
from tests.fakes.timeline import Timeline

FACTS = find_language("en").facts
folded = partial(fold_state, facts=FACTS)


def test_slots_come_from_what_the_person_says_with_the_event_that_says_it() -> None:
    line = Timeline()
    line.said("Hello, my name is Ada.")
    line.replied("Hello Ada. My name is Parley.")
    line.said("my account number is four one seven two")
    state = folded(line.events)
    assert {name: (slot.value, slot.seq) for name, slot in state.slots.items()} == {
        "name": ("Ada", 1),
        "account number": ("4172", 3),
    }


def test_later_statements_win() -> None:
    line = Timeline()
    line.said("I live in Berlin and my name is Ada")
    line.said("I live in Paris")
    state = folded(line.events)
    assert state.values == {"name": "Ada", "home": "Paris"}
    assert state.slots["home"].seq == 2


def test_a_correction_changes_what_was_just_said() -> None:
    line = Timeline()
    line.said("my account number is 4172")
    line.replied("Thank you, 4172.")
    line.said("no, it's 4173")
    assert folded(line.events).values == {"account number": "4173"}


def test_a_correction_does_not_reach_far_back() -> None:
    line = Timeline()
    line.said("my account number is 4172")
    for _ in range(3):
        line.said("what are your opening hours")
    line.said("no, it's 4173")
    assert folded(line.events).values == {"account number": "4172"}


def test_a_question_is_no_statement() -> None:
    line = Timeline()
    line.said("Is my name Ada?")
    line.said("what is my account number")
    assert folded(line.events) == SessionState()


def test_the_intent_is_the_last_one_that_was_said() -> None:
    line = Timeline()
    line.said("I'm calling about a lost card.")
    line.said("Thank you.")
    assert folded(line.events).intent == "a lost card"
    line.said("And I want to close my account.")
    assert folded(line.events).intent == "to close my account"


def test_events_may_come_in_any_order() -> None:
    line = Timeline()
    line.said("my name is Eda")
    line.said("no, it's Ada")
    line.state(slots={"mood": "calm"})
    line.said("I live in Berlin")
    expected = folded(line.events)
    shuffled = list(line.events)
    random.Random(3).shuffle(shuffled)
    assert folded(shuffled) == expected


def test_what_happened_later_wins_over_what_was_committed_later() -> None:
    line = Timeline()
    line.said("I live in Paris", at_us=9_000_000)
    line.said("I live in Berlin", at_us=2_000_000)
    assert folded(line.events).values == {"home": "Paris"}


def test_a_state_event_adds_takes_away_and_names_the_speaker() -> None:
    line = Timeline()
    line.said("my name is Ada")
    line.state(speaker="s1", slots={"tier": "gold", "visits": 3})
    line.state(slots={"name": None})
    state = folded(line.events)
    assert (state.speaker, state.values) == ("s1", {"tier": "gold", "visits": "3"})


def test_superseded_events_do_not_count() -> None:
    line = Timeline()
    line.said("my name is Eda")
    line.said("my name is Ada", supersedes=1)
    line.state(slots={"tier": "gold"})
    line.state(slots={"tier": None, "level": "two"}, supersedes=["key.3"])
    assert folded(line.events).values == {"name": "Ada", "level": "two"}
    assert [event.seq for event in current_events(line.events)] == [2, 4]


def test_the_payload_of_a_state_event_gives_the_same_state_as_the_turn() -> None:
    line = Timeline()
    state = SessionState()
    for text in (
        "my name is Eda and I'm calling about a lost card",
        "no, it's Ada",
        "remember that I drink tea",
    ):
        line.said(text)
        payload = learn(text, state, FACTS)
        line.state(**payload)
        state = folded(line.events)
    assert state.values == {"name": "Ada", "note": "I drink tea"}
    only_states = [event for event in line.events if event.kind is Kind.STATE]
    assert folded(only_states).values == state.values
    assert folded(only_states).intent == state.intent == "a lost card"


def test_nothing_new_is_no_payload() -> None:
    line = Timeline()
    line.said("my name is Ada")
    state = folded(line.events)
    assert learn("my name is Ada", state, FACTS) == {}
    assert learn("what is my name", state, FACTS) == {}


def test_a_summary_carries_the_state_of_what_it_covers() -> None:
    line = Timeline()
    line.said("my name is Eda")
    line.said("my name is Ada")
    line.said("I live in Berlin")
    carried = state_payload(folded(line.events[:2]))
    line.summary("They met.", 2, state=carried)
    assert folded(line.visible()).values == {"name": "Ada", "home": "Berlin"}
    assert folded(line.visible()).slots["name"].seq == 2
    assert folded(line.visible()).slots == folded(line.events).slots


def test_a_summary_does_not_undo_what_was_said_after_it() -> None:
    line = Timeline()
    line.said("I live in Berlin")
    carried = state_payload(folded(line.events))
    line.said("I live in Paris")
    line.summary("They met.", 1, state=carried)
    assert folded(line.visible()).values == {"home": "Paris"}


def test_without_rules_nothing_is_extracted_and_state_events_count() -> None:
    line = Timeline()
    line.said("my name is Ada and I am calling about a lost card")
    line.state(slots={"tier": "gold"})
    line.said("no, it's Eda")
    state = fold_state(line.events)
    assert (state.values, state.intent) == ({"tier": "gold"}, None)
    assert learn("my account number is 4172", state, None) == {}
