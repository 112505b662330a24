import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.core.errors import StoreError
from parley.session_store.events import Draft, Kind
from parley.session_store.rows import draft_row, event_of, is_tenant, payload_json

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


# The first example includes the construction of tables of characters.
@settings(deadline=None)
@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_json_comes_back_from_a_row(payload: dict[str, object]) -> None:
    row = draft_row(Draft(Kind.STATE, payload, 1, 2, "s", key="k"), max_payload_bytes=10**6)
    event = event_of({"session_id": "x", "seq": 1, "epoch": 1, **row})
    assert event.payload == {"v": 1, **payload}


def test_a_payload_keeps_the_version_that_it_brings() -> None:
    row = draft_row(Draft(Kind.STATE, {"v": 3}, 1, 2, "s"), max_payload_bytes=100)
    assert json.loads(row["payload"]) == {"v": 3}


def test_an_event_does_not_follow_its_draft_when_that_is_changed() -> None:
    slots = {"city": "Oslo"}
    row = draft_row(Draft(Kind.STATE, {"slots": slots}, 1, 2, "s"), max_payload_bytes=100)
    slots["city"] = "Rome"
    event = event_of({"session_id": "x", "seq": 1, "epoch": 1, **row})
    assert event.payload["slots"] == {"city": "Oslo"}


def test_the_size_of_a_payload_is_bounded_in_bytes() -> None:
    fits = payload_json({"t": "é" * 10}, max_bytes=68)
    assert len(fits.encode()) == 68
    with pytest.raises(StoreError, match="68"):
        payload_json({"t": "é" * 10}, max_bytes=67)


def test_a_refusal_does_not_quote_what_was_said() -> None:
    with pytest.raises(StoreError) as error:
        payload_json({"my secret": {1, 2}}, max_bytes=100)
    assert "secret" not in str(error.value) and error.value.__cause__ is None


def test_an_event_of_a_newer_release_says_so() -> None:
    row = draft_row(Draft(Kind.STATE, {}, 1, 2, "s"), max_payload_bytes=100)
    with pytest.raises(StoreError, match="hologram"):
        event_of({"session_id": "x", "seq": 1, "epoch": 1, **row, "kind": "hologram"})


@pytest.mark.parametrize(("name", "good"), [("bank", True), ("Łódź 2", True), ("", False), ("a\nb", False)])
def test_names_of_tenants(name: str, good: bool) -> None:
    assert is_tenant(name) is good
