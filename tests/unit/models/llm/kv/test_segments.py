"""The record of fed segments, and its digest."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.models.llm.kv.segments import Fed, Scope, extended

SCOPE = Scope("salt", "session", "model", "template")
SEGMENTS = st.lists(st.lists(st.integers(0, 2**40), min_size=1, max_size=6), max_size=6)


def fed(segments: list[list[int]], scope: Scope = SCOPE) -> Fed:
    made = Fed(scope)
    for segment in segments:
        made.append(segment)
    return made


@given(SEGMENTS, SEGMENTS)
def test_two_contexts_have_one_digest_only_when_they_read_the_same(
    one: list[list[int]], other: list[list[int]]
):
    assert (fed(one).digest == fed(other).digest) is (one == other)


@given(SEGMENTS, st.data())
def test_what_was_cropped_is_as_if_it_had_never_been(segments: list[list[int]], data: st.DataObject):
    made = fed(segments)
    at = data.draw(st.integers(0, made.tokens))
    whole = made.token_ids
    made.crop(at)
    assert made.token_ids == whole[:at] and made.tokens == at
    kept, left = [], at
    for segment in segments:
        if left:
            kept.append(segment[:left])
            left -= len(kept[-1])
    assert made.digest == fed(kept).digest and made.ends_at(made.digest) == at


@pytest.mark.parametrize("field", [each.name for each in dataclasses.fields(Scope)])
def test_a_caller_who_reads_otherwise_or_for_someone_else_shares_nothing(field: str):
    other = dataclasses.replace(SCOPE, **{field: "another"})
    assert fed([[1]], other).digest != fed([[1]]).digest
    assert fed([[1]]).ends_at(other.root) is None


def test_fields_of_a_scope_do_not_run_into_each_other():
    assert Scope("a", "bc", "m", "t").root != Scope("ab", "c", "m", "t").root


def test_a_segment_is_its_tokens_and_its_media():
    assert extended(SCOPE.root, [1, 2]) != extended(SCOPE.root, [1, 2], "picture")
    assert extended(extended(SCOPE.root, [1]), [2]) != extended(SCOPE.root, [1, 2])


def test_a_picture_has_no_parts():
    made = fed([[1, 2]])
    made.append([3, 4, 5], "picture")
    with pytest.raises(ValueError, match="cannot be split"):
        made.crop(4)
    assert made.tokens == 5
    made.crop(2)
    assert made.tokens == 2
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match="cannot be kept"):
            made.crop(wrong)
