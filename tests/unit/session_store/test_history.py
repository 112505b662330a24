"""The history that a client displays agrees with the session."""

from typing import Any

from parley.session_store.events import Draft, Event, Kind
from parley.session_store.history import DisplayedMessage, parting

CHAT = "chat"


def turns(*said: tuple[str, str] | tuple[str, str, str], **more: Any) -> list[Event]:
    events = []
    for seq, (role, text, *transport) in enumerate(said, start=1):
        kind = Kind.USER_TURN if role == "user" else Kind.BOT_TURN
        payload = {"text": text, "transport": transport[0] if transport else CHAT, **more}
        events.append(Draft(kind, payload, seq * 1_000, seq * 1_000, role, key=f"k{seq}").at("s", seq, 1))
    return events


def shown(*said: tuple[str, str]) -> list[DisplayedMessage]:
    return [DisplayedMessage(role, text) for role, text in said]  # type: ignore[arg-type]


FIRST = (("user", "Hello."), ("assistant", "Hi there."))


def test_what_the_session_has_is_not_new():
    found = parting(turns(*FIRST), shown(*FIRST), transport=CHAT)
    assert (found.new, found.gone) == ((), ())


def test_everything_is_new_in_a_new_session():
    assert len(parting([], shown(*FIRST), transport=CHAT).new) == 2


def test_white_space_makes_no_difference():
    found = parting(turns(*FIRST), shown(("user", " Hello. "), ("assistant", "Hi\nthere.")), transport=CHAT)
    assert not found.gone


def test_an_answer_that_is_wanted_anew_counts_no_more_with_its_question():
    found = parting(turns(*FIRST, ("user", "Why?"), ("assistant", "Because.")), shown(*FIRST), transport=CHAT)
    assert [event.payload["text"] for event in found.gone] == ["Why?", "Because."]
    assert found.supersedes == ("k3", "k3.state", "k4")


def test_an_edit_in_the_middle_takes_the_place_of_what_followed():
    edited = shown(("user", "Good day."), ("assistant", "Hi there."))
    found = parting(turns(*FIRST, ("user", "Why?")), edited, transport=CHAT)
    assert [event.key for event in found.gone] == ["k1", "k2", "k3"]
    assert found.new == tuple(edited)


def test_what_was_said_in_a_call_in_between_stays():
    called = (("user", "By phone.", "twilio"), ("assistant", "Yes.", "twilio"))
    has = turns(*FIRST, *called, ("user", "Why?"), ("assistant", "Because."))
    found = parting(has, shown(*FIRST, ("user", "Why?"), ("assistant", "Because.")), transport=CHAT)
    assert (found.new, found.gone) == ((), ())


def test_a_client_that_knows_of_the_call_may_show_it():
    has = turns(*FIRST, ("user", "By phone.", "twilio"))
    found = parting(has, shown(*FIRST, ("user", "By phone.")), transport=CHAT)
    assert (found.new, found.gone) == ((), ())


def test_what_is_superseded_already_is_not_there():
    old = turns(("user", "Helo."))
    new = Draft(
        Kind.USER_TURN, {"text": "Hello.", "transport": CHAT, "supersedes": ["k1"]}, 2_000, 2_000, "user"
    )
    found = parting([*old, new.at("s", 2, 1)], shown(("user", "Hello.")), transport=CHAT)
    assert (found.new, found.gone) == ((), ())
