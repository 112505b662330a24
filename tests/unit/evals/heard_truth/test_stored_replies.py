"""Agreement of a session with the client's report of an interrupted reply."""

from typing import Any

import pytest

from parley.evals.heard_truth.session import is_committed, is_shown
from parley.session_store.events import Event, Kind
from parley.session_store.prompt import prompt_view

HEARD = {
    "reply_id": "r1",
    "text": "At nine we open, and",
    "unheard": 'we close at "six" [or so].',
    "truncated": True,
    "audio_ms": 1_200,
    "last_word": 4,
}


def event(seq: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "payload": payload}


def bot_turn(**changes: Any) -> dict[str, Any]:
    return event(3, "bot_turn", **{**HEARD, **changes})


def view(heard: dict[str, Any], *, asked_again: bool = True) -> list[dict[str, Any]]:
    """Return the product's view of a session with this reply."""

    def made(seq: int, kind: Kind, source: str, **payload: Any) -> Event:
        return Event("s", seq, 1, kind, payload, seq * 1_000, seq * 1_000, source, None, True, 1.0, f"k{seq}")

    events = [
        made(1, Kind.USER_TURN, "user", text="When do you open?"),
        made(2, Kind.BOT_TURN, "bot", **heard),
    ]
    if asked_again:
        events.append(made(3, Kind.USER_TURN, "user", text="And on Sunday?"))
        events.append(made(4, Kind.HEARD, "bot", reply_id="r2", text="On Sunday we"))
    return list(prompt_view(events, budget_tokens=6_000).messages)


def test_a_reply_that_is_stored_as_it_was_told_is_committed():
    assert is_committed([event(1, "user_turn", text="When?"), bot_turn()], HEARD)


@pytest.mark.parametrize(
    "events",
    [
        [],
        [bot_turn(), bot_turn()],
        [bot_turn(reply_id="r2")],
        [bot_turn(truncated=False)],
        [bot_turn(text="At nine we open, and we")],
        [bot_turn(unheard="")],
        [bot_turn(last_word=5)],
        [event(3, "heard", **HEARD)],
    ],
)
def test_anything_else_is_not(events):
    assert not is_committed(events, HEARD)


def test_a_reply_that_its_record_calls_whole_is_committed_and_shown_whole():
    whole = {**HEARD, "truncated": False, "unheard": ""}
    assert is_committed([event(3, "bot_turn", **whole)], whole)
    assert not is_committed([event(3, "bot_turn", **{**whole, "truncated": True})], whole)
    assert is_shown(view(whole), whole)
    assert not is_shown(view({**whole, "truncated": True}), whole)


@pytest.mark.parametrize(
    "heard",
    [
        HEARD,
        {**HEARD, "unheard": " ".join(f"word{n}" for n in range(200))},
        {**HEARD, "unheard": ""},
        {**HEARD, "text": ""},
        {**HEARD, "unheard": "so on ..."},
    ],
)
@pytest.mark.parametrize("asked_again", [True, False])
def test_the_view_of_the_product_shows_what_was_heard_and_the_rest(heard, asked_again):
    assert is_shown(view(heard, asked_again=asked_again), heard)


@pytest.mark.parametrize(
    "received",
    [
        {**HEARD, "text": "At nine we open, and we"},
        {**HEARD, "text": "At nine we open,"},
        {**HEARD, "unheard": "we close at six."},
        {**HEARD, "unheard": ""},
        {**HEARD, "text": ""},
    ],
)
def test_a_view_that_says_something_else_does_not_show_it(received):
    assert not is_shown(view(HEARD), received)


def test_a_whole_reply_is_not_shown_as_interrupted():
    assert not is_shown(view({**HEARD, "truncated": False, "unheard": ""}), HEARD)


def test_an_older_reply_of_the_same_words_does_not_count():
    later = [{"role": "user", "content": "Yes?"}, {"role": "assistant", "content": "Another one."}]
    assert not is_shown([*view(HEARD, asked_again=False), *later, *later], HEARD)
