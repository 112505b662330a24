"""The bounded mapping keeps the newest entries, and never more than its limit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.bounded_dict import BoundedDict


@given(st.integers(1, 5), st.lists(st.integers(0, 9), max_size=40))
def test_it_holds_the_entries_that_were_assigned_last(most: int, keys: list[int]) -> None:
    newest: BoundedDict[int, int] = BoundedDict(most)
    for number, key in enumerate(keys):
        newest[key] = number
        assert len(newest) <= most
    last = list(dict.fromkeys(reversed(keys)))[:most]
    assert list(newest) == last[::-1]
    assert all(keys[number] == key and key not in keys[number + 1 :] for key, number in newest.items())


def test_there_is_no_way_around_the_bound() -> None:
    newest: BoundedDict[str, int] = BoundedDict(1)
    with pytest.raises(TypeError):
        newest.update(a=1, b=2)
    with pytest.raises(TypeError):
        newest.setdefault("a", 1)
    with pytest.raises(TypeError):
        newest |= {"a": 1}
    assert not newest
